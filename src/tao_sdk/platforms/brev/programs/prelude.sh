# A word that nothing else prints frames every answer, so that output of login scripts is left out.
LC_ALL=C; export LC_ALL
umask 077
base=$HOME/.tao-sdk
mark() { printf '\n@%s %s\n' "$nonce" "$*"; }
# Whether a folder above this path may not be read.
hidden() {
  above=$1
  while [ ! -d "${above:-/}" ]; do
    case $above in */*) above=${above%/*};; *) return 1;; esac
  done
  [ ! -x "${above:-/}" ]
}
# Start the supervisor of a job; it exits at once if the job has one.
supervise() { setsid sh "$base/jobs/$1/supervise.sh" >/dev/null 2>&1 </dev/null & }
mark begin
