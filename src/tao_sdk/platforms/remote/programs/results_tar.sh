# The files of these names (each ended by a NUL) as an archive; then what tar complains of.
mark archive
{ said=$(cd "$folder" && tar --null --no-unquote --no-recursion --hard-dereference --format=gnu \
  -T - -cf - 2>&1 >&3); } 3>&1
mark said; printf '%s' "$said" | head -n 3
