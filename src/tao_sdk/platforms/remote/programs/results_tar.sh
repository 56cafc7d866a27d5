# The files of these names (each ended by a NUL) as an archive; then what tar complains of.
mark archive
{ complaints=$(cd "$folder" && tar --null --no-unquote --no-recursion --hard-dereference --format=gnu \
  -T - -cf - 2>&1 >&3); } 3>&1
mark complaints; printf '%s' "$complaints" | head -n 3
