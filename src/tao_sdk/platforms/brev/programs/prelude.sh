# Every answer is framed by a word that nobody else prints: what login scripts say is left out.
LC_ALL=C; export LC_ALL
umask 077
base=$HOME/.tao-sdk
mark() { printf '\n@%s %s\n' "$nonce" "$*"; }
# Is there a folder on the way to this path that we may not look into?
hidden() {
  above=$1
  while [ ! -d "${above:-/}" ]; do
    case $above in */*) above=${above%/*};; *) return 1;; esac
  done
  [ ! -x "${above:-/}" ]
}
# Start what looks after a job; it leaves again if somebody does already.
supervise() { setsid sh "$base/jobs/$1/supervise.sh" >/dev/null 2>&1 </dev/null & }
mark begin
