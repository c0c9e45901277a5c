#!/bin/sh
# Writes the entry of udev's database that libcufile asks for before it takes a file, on a machine that runs no
# udev (a container, a small virtual machine). For test machines only: a real host has entries of its own. Root.
#
#   udev-entry.sh FILE      FILE lies on the disk that the entry is for
set -eu
file=${1:?usage: udev-entry.sh FILE}
device=$(stat -c %d -- "$file")
# As gnu_dev_major and gnu_dev_minor take it apart.
major=$(((device >> 8) & 0xfff))
minor=$(((device & 0xff) | ((device >> 12) & 0xfff00)))
if [ ! -e "/sys/dev/block/$major:$minor" ]; then
    echo "udev-entry.sh: $file lies on no block device ($major:$minor)" >&2
    exit 1
fi
entry=/run/udev/data/b$major:$minor
# An entry is never changed: it may be udev's own.
if [ -e "$entry" ]; then
    if ! grep -q '^E:ID_FS_USAGE=' "$entry"; then
        echo "udev-entry.sh: $entry has no ID_FS_USAGE; have udev look again: udevadm trigger --subsystem-match=block" >&2
        exit 1
    fi
    echo "$entry is already there"
    exit 0
fi
mkdir -p /run/udev/data
case $(stat -f -c %T -- "$file") in
ext2/ext3) type=ext4 ;;
*) type=$(stat -f -c %T -- "$file") ;;
esac
cat >"$entry" <<END
I:1
E:ID_FS_TYPE=$type
E:ID_FS_USAGE=filesystem
E:ID_FS_UUID=00000000-0000-0000-0000-000000000001
E:ID_SERIAL=test
END
# libudev takes udev to run where this is there.
touch /run/udev/control
echo "wrote $entry"
