# What nodes of which partition offer beside processors and memory.
mark gres; sinfo -h -o '%R|%G' 2>/dev/null
