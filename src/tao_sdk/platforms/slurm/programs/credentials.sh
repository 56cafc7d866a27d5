# Does enroot know a password for this registry? Tells that, and nothing of what it is.
file=${XDG_CONFIG_HOME:-$HOME/.config}/enroot/.credentials
if awk -v wanted="$machine" '$1 == "machine" && $2 == wanted { found = 1 } END { exit !found }' \
  "$file" 2>/dev/null
then mark present; else mark missing; fi
