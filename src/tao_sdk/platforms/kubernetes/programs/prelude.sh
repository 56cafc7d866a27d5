# Each section of an answer begins with a random word of this call.
LC_ALL=C; export LC_ALL
mark() { printf '\n@%s %s\n' "$nonce" "$*"; }
mark begin
lacks() { mark lacks "$1"; mark end-of-answer; exit; }
find / -maxdepth 0 -printf '' 2>/dev/null || lacks find
xargs -0 -r true </dev/null 2>/dev/null || lacks xargs
tar --null --no-unquote --format=gnu -T /dev/null -cf /dev/null 2>/dev/null || lacks tar
sha256sum -z /dev/null >/dev/null 2>&1 || lacks sha256sum
