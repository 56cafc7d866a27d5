# How these names (each ended by a NUL) are now: six fields of each one that is there.
mark entries
cd "$folder" && xargs -0 -r sh -c '
  record=$1; shift
  exec find "$@" -maxdepth 0 \( -type f ! -readable -printf "x$record" \) -o -printf "%y$record"
' sh "$record" 2>/dev/null
