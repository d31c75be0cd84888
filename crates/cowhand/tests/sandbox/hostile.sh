# An agent that tries to leave its sandbox. It prints one line with the result of each attempt. Programs print their
# errors to stderr.
attempt() {
    name=$1
    shift
    if "$@"; then echo "$name: out"; else echo "$name: held"; fi
}
reach='use IO::Socket::INET; use IO::Socket::UNIX; my ($how, $to) = @ARGV;
    my $s = $how eq "unix" ? IO::Socket::UNIX->new(Peer => $to)
        : IO::Socket::INET->new(PeerAddr => $to, Proto => $how, Timeout => 5);
    $s or die "$how $to: $!\n";
    if ($how eq "tcp") { print $s "GET /token HTTP/1.0\r\n\r\n"; print while <$s> }
    if ($how eq "udp") { $s->send("x") or die "udp $to: $!\n" }'
# Prints the pids of all visible cowhand processes. These include the keeper and the daemon if the sandbox does not hide
# them. Pid 1 is left out, because in a PID namespace it is the first process of the sandbox.
watchers() { grep -lza cowhand /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3 | grep -vx -e "$$" -e 1; }
kill_watchers() {
    found=$(watchers)
    [ -n "$found" ] || { echo "no watcher to be seen" >&2; return 1; }
    for pid in $found; do kill -KILL "$pid" && return 0; done
    return 1
}
starve_watchers() {
    found=$(watchers)
    [ -n "$found" ] || return 1
    for pid in $found; do prlimit --pid "$pid" --nofile=3:3 && return 0; done
    return 1
}
find_token() { cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | grep -a "^CANARY=" ; }

echo fine >inside && attempt inside grep -q fine inside
attempt write sh -c "echo x >$OUTSIDE/escaped"
attempt link sh -c "ln -s $OUTSIDE link && echo x >link/escaped"
attempt remove rm "$OUTSIDE/.keep"
[ -n "$TAME" ] || attempt config sh -c "echo x >>$FLEET/cowhand.yaml"
attempt key cat "$HOME/.ssh/id"
attempt new-key sh -c "echo x >$HOME/.ssh/authorized_keys"
attempt cloud cat "$HOME/.aws/credentials"
attempt shadow grep -q . /etc/shadow
attempt state ls "$FLEET/.cowhand"
attempt kernel sh -c 'cat /proc/sys/kernel/hostname >/proc/sys/kernel/hostname'
# Keys that the kernel keeps for this user: 250 is keyctl on one kind of processor, 219 on the other.
attempt keyring perl -e 'my $n = `uname -m` =~ /x86/ ? 250 : 219; syscall($n, 0, -4, 1) >= 0 or die "keyctl: $!\n"'
attempt metadata perl -e "$reach" tcp 169.254.169.254:80
attempt socket perl -e "$reach" tcp 127.0.0.1:8099
attempt udp perl -e "$reach" udp 169.254.169.254:53
attempt daemon perl -e "$reach" unix "$FLEET/.cowhand/sock"
attempt token find_token
# These attempts would end the keeper and the daemon.
[ -n "$TAME" ] || attempt starve starve_watchers
[ -n "$TAME" ] || attempt kill kill_watchers
echo over
