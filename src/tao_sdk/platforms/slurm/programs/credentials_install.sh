# Give enroot the password of a registry. The lines for its file follow; older ones of the same
# machines (`machines`, by space) go.
umask 077
folder=${XDG_CONFIG_HOME:-$HOME/.config}/enroot
file=$folder/.credentials
if ! error=$(mkdir -p "$folder" 2>&1); then mark failed "$error"; exit; fi
[ ! -L "$file" ] || file=$(readlink -f "$file")
new=$file.$nonce
trap 'rm -f "$new"' EXIT
if ! error=$({
  [ ! -e "$file" ] || awk -v gone=" $machines " '
    $1 == "machine" || $1 == "default" || $1 == "macdef" {
      skip = $1 == "machine" && index(gone, " " $2 " ")
    }
    !skip' "$file"
  cat
} 2>&1 > "$new" && mv -f "$new" "$file" 2>&1); then mark failed "$error"; exit; fi
mark done
