# Every file below a folder: size and path from it.
mark files; [ ! -d "$path" ] || find "$path" -type f -printf '%s %P\0'
