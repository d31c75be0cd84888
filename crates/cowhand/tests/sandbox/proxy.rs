//! The proxy, the only network access of a bubblewrap sandbox.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use serde_json::json;

use super::{Scene, User, wait_until};

/// Starts a server that answers everything in the same way, until the test ends.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut stream = stream;
                let mut request = [0; 4096];
                let count = stream.read(&mut request).unwrap_or_default();
                let path =
                    String::from_utf8_lossy(&request[..count]).lines().next().unwrap_or_default().to_owned();
                let body = format!("answered {path}");
                write!(
                    stream,
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                )
                .ok();
            });
        }
    });
    address
}

/// Script that sends one request to the proxy and prints the answer; after a tunnel is open, another request
/// through it.
const ASK: &str = r#"ask() { perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1:3128") or die "$!\n";
    my ($first, $then) = @ARGV; print $s "$first HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    if ($then) { while (<$s>) { print; last if /^\r?$/ } print $s "$then HTTP/1.1\r\nHost: x\r\n\r\n" }
    print while <$s>; print "\n"' "$@"; }
"#;

fn by_proxy(user: User) {
    let (open, closed) = (server(), server());
    let script = format!(
        "{ASK}ask 'GET http://{open}/plain'; ask 'CONNECT {open}' 'GET /tunnel'; ask 'GET http://{closed}/x'; ask 'CONNECT \
         {closed}'; ask 'CONNECT 169.254.169.254:80'; ask 'CONNECT [::1]:{port}'; ask 'CONNECT metadata.internal:443'; ask \
         'GET /pages'; perl -MIO::Socket::INET -e 'IO::Socket::INET->new(PeerAddr => \"{open}\") and print \"direct\\n\"'; \
         echo $HTTPS_PROXY",
        port = open.port()
    );
    let sandbox = json!({"kind": "bubblewrap", "network": {"hosts": [open.to_string(), "*.example.com"]}});
    let mut scene = Scene::new(user, &script, &json!({ "sandbox": sandbox }));
    scene.start();
    let (job, said) = scene.run();
    assert_eq!(job["status"], "completed", "{job:#}\n{said}");
    assert!(said.contains("answered GET /plain"), "{said}");
    assert!(said.contains("answered GET /tunnel"), "{said}");
    assert_eq!(said.matches("403 Forbidden").count(), 5, "{said}");
    assert!(said.contains("400 Bad Request"), "{said}");
    assert!(!said.contains("direct"), "{said}");
    assert!(said.contains("http://127.0.0.1:3128"), "{said}");
    // Each refusal is reported twice: to the agent, and in the output of its job.
    for refused in [closed.to_string(), "169.254.169.254:80".to_owned(), "metadata.internal:443".to_owned()] {
        let note = format!("cowhand: the sandbox refused {refused}: it is not in `hosts`");
        assert!(said.contains(&note), "{note}: {said}");
    }
}

#[test]
fn proxy_allows_only_listed_hosts_as_root() {
    by_proxy(User::Root);
}

#[test]
fn proxy_allows_only_listed_hosts_as_nobody() {
    by_proxy(User::Nobody);
}

/// The keeper runs the proxy, so the proxy continues while no daemon runs, and with the next daemon.
#[test]
fn proxy_continues_when_daemon_is_killed() {
    let open = server();
    let script = format!(
        "{ASK}touch up; while [ ! -e one ]; do sleep 0.05; done; ask 'GET http://{open}/alone'; touch asked; while [ ! -e two \
         ]; do sleep 0.05; done; ask 'GET http://{open}/again'"
    );
    let sandbox = json!({"kind": "bubblewrap", "network": {"hosts": [open.to_string()]}});
    let mut scene = Scene::new(User::Root, &script, &json!({ "sandbox": sandbox }));
    scene.start();
    let id = scene.trigger();
    wait_until("the agent", || scene.path("desk/up").exists().then_some(()));
    let mut daemon = scene.daemon.take().unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    scene.write("desk/one", "");
    wait_until("its first answer", || scene.path("desk/asked").exists().then_some(()));
    scene.start();
    scene.write("desk/two", "");
    let (job, said) = scene.ended(&id);
    assert_eq!(job["status"], "completed", "{job:#}\n{said}");
    assert!(said.contains("answered GET /alone") && said.contains("answered GET /again"), "{said}");
}

/// A setting that the kind does not support is an error of the config.
#[test]
fn landlock_refuses_hosts_in_config() {
    let sandbox = json!({"kind": "landlock", "network": {"hosts": ["api.example.com"]}});
    let scene = Scene::new(User::Root, "true", &json!({ "sandbox": sandbox }));
    let said = scene.command(&["config", "check"]).output().unwrap();
    let said = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
    assert!(said.contains("Landlock can restrict ports (`network: {ports: …}`) but not hosts"), "{said}");
}

/// Landlock restricts ports: only TCP to the listed port is allowed.
#[test]
fn landlock_allows_only_listed_ports() {
    for user in [User::Root, User::Nobody] {
        let (open, closed) = (server(), server());
        let script = format!(
            "reach() {{ perl -MIO::Socket::INET -e 'my ($p, $a) = @ARGV; IO::Socket::INET->new(Proto => $p, PeerAddr => $a) \
             and print \"$p $a reached\\n\" or print \"$p $a: $!\\n\"' $1 $2; }}; reach tcp {open}; reach tcp {closed}; reach \
             udp {open}"
        );
        let sandbox = json!({"kind": "landlock", "network": {"ports": [open.port()]}});
        let mut scene = Scene::new(user, &script, &json!({ "sandbox": sandbox }));
        scene.start();
        let (_, said) = scene.run();
        assert!(said.contains(&format!("tcp {open} reached")), "{said}");
        assert!(said.contains(&format!("tcp {closed}: Permission denied")), "{said}");
        assert!(said.contains(&format!("udp {open}: Permission denied")), "{said}");
    }
}
