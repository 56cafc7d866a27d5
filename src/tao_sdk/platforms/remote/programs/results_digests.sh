# SHA-256 of the files of these names (each ended by a NUL).
mark digests
cd "$folder" && xargs -0 -r sha256sum -z 2>/dev/null
