#!/bin/bash
# The firmware of a fake VM: runs as its first process, in namespaces of its own, puts its root directory together and
# becomes systemd. The root is an overlay on the host's: what the VM changes goes to $DISK and nowhere else.
#   ROOT DISK CONSOLE   mount point; file system that holds the changes; file that is the console
#   NAME ADDRESS SSH_PORT AUTHORIZED_KEY INSTANCE_ID USER_DATA   who the VM is
#   PYTHON BASE_PYTHON BINDS   the training environment's interpreter, the image's own, folders to show although in /tmp
set -eu
R=$ROOT
units=$R/etc/systemd/system

assemble() {
  mkdir -p "$DISK/up" "$DISK/work"
  mount -t overlay overlay -o "lowerdir=/,upperdir=$DISK/up,workdir=$DISK/work" "$R"
  mount --rbind /dev "$R/dev"
  mount -t tmpfs tmpfs "$R/dev/shm"
  mount -t proc proc "$R/proc"
  mount -t tmpfs -o mode=1777 tmpfs "$R/tmp"
  mount -t tmpfs -o mode=755 tmpfs "$R/run"
  for folder in $BINDS; do
    mkdir -p "$R$folder"
    mount --bind "$folder" "$R$folder"
  done
  touch "$R/var/log/console.log"
  mount --bind "$CONSOLE" "$R/var/log/console.log"
  mkdir -p "$R/sys/fs/cgroup"
  mount -t tmpfs -o mode=755 tmpfs "$R/sys/fs/cgroup"
  mkdir "$R/sys/fs/cgroup/systemd" "$R/sys/fs/cgroup/unified"
  mount -t cgroup2 cgroup2 "$R/sys/fs/cgroup/unified"
  mount -t cgroup -o none,name=systemd cgroup "$R/sys/fs/cgroup/systemd"
}

# What a machine image brings along, and what cloud-init writes before anything starts.
prepare() {
  echo "$NAME" >"$R/etc/hostname"
  printf '127.0.0.1 localhost\n%s %s\n' "$ADDRESS" "$NAME" >"$R/etc/hosts"
  : >"$R/etc/machine-id"
  log_in
  interpreters
  services
  install -D -m 700 "$USER_DATA" "$R/var/lib/cloud/instance/user-data.txt"
  touch "$R/etc/drill-image"
}

log_in() {
  sed -i -E '/^ubuntu:/d; /^[^:]*:[^:]*:1000:/d' "$R/etc/passwd" "$R/etc/group" "$R/etc/shadow"
  echo 'ubuntu:x:1000:1000:Ubuntu:/home/ubuntu:/bin/bash' >>"$R/etc/passwd"
  echo 'ubuntu:x:1000:' >>"$R/etc/group"
  echo 'ubuntu:*:19000:0:99999:7:::' >>"$R/etc/shadow"
  install -d -m 755 "$R/home"
  install -d -m 750 -o 1000 -g 1000 "$R/home/ubuntu"
  install -d -m 700 -o 1000 -g 1000 "$R/home/ubuntu/.ssh"
  echo "$AUTHORIZED_KEY" >"$R/home/ubuntu/.ssh/authorized_keys"
  chown 1000:1000 "$R/home/ubuntu/.ssh/authorized_keys"
  install -d "$R/etc/sudoers.d"
  echo 'ubuntu ALL=(ALL) NOPASSWD:ALL' >"$R/etc/sudoers.d/90-cloud-init-users"
  rm -f "$R"/etc/ssh/ssh_host_* "$R"/etc/ssh/sshd_config.d/*
  ssh-keygen -q -t ed25519 -N '' -C "root@$INSTANCE_ID" -f "$R/etc/ssh/ssh_host_ed25519_key"
  printf '%s\n' "Port $SSH_PORT" 'HostKey /etc/ssh/ssh_host_ed25519_key' 'UsePAM yes' 'UseDNS no' \
    'PasswordAuthentication no' 'KbdInteractiveAuthentication no' 'Subsystem sftp internal-sftp' >"$R/etc/ssh/sshd_config"
}

# The host's interpreters may lie where only root comes: here, everybody does.
interpreters() {
  for program in "$PYTHON" "$(readlink -f "$PYTHON")" "$BASE_PYTHON"; do
    folder=$(dirname "$program")
    while [ "$folder" != / ]; do
      chmod o+x "$R$folder"
      folder=$(dirname "$folder")
    done
  done
  mkdir -p "$R/opt/pytorch/bin" "$R/usr/local/bin"
  printf '#!/bin/sh\nexec %s "$@"\n' "$PYTHON" >"$R/opt/pytorch/bin/python"
  printf '#!/bin/sh\nexec %s "$@"\n' "$BASE_PYTHON" >"$R/usr/local/bin/python3"
  chmod 755 "$R/opt/pytorch/bin/python" "$R/usr/local/bin/python3"
}

# Of the host's services none; sshd, and what stands for cloud-init: user-data once, then the host keys, in this order.
services() {
  rm -rf "$units"/*.wants
  mkdir -p "$units/multi-user.target.wants"
  for unit in systemd-{sysctl,binfmt,modules-load,udevd,udev-trigger,networkd,resolved,timesyncd}.service \
    systemd-tmpfiles-setup-dev.service kmod-static-nodes.service console-getty.service getty@tty1.service \
    apt-daily.timer sys-kernel-{debug,tracing}.mount proc-sys-fs-binfmt_misc.automount dev-hugepages.mount; do
    ln -sf /dev/null "$units/$unit"
  done
  cat >"$R/usr/local/sbin/cloud-final" <<'SCRIPT'
#!/bin/sh
cd /var/lib/cloud/instance
if [ -s user-data.txt ] && [ ! -e user-data.done ]; then
  touch user-data.done
  ./user-data.txt
  echo "user-data ended with exit code $?"
fi
echo "-----BEGIN SSH HOST KEY KEYS-----"
cat /etc/ssh/ssh_host_ed25519_key.pub
echo "-----END SSH HOST KEY KEYS-----"
SCRIPT
  chmod 755 "$R/usr/local/sbin/cloud-final"
  cat >"$units/cloud-final.service" <<'UNIT'
[Unit]
After=ssh.service

[Service]
Type=oneshot
ExecStart=/usr/local/sbin/cloud-final
StandardOutput=append:/var/log/console.log
StandardError=append:/var/log/console.log
UNIT
  ln -s ../cloud-final.service "$units/multi-user.target.wants/"
  ln -s /lib/systemd/system/ssh.service "$units/multi-user.target.wants/"
}

assemble
[ -e "$R/etc/drill-image" ] || prepare
hostname "$NAME"
exec env -i container=docker PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  chroot "$R" /lib/systemd/systemd systemd.unit=multi-user.target
