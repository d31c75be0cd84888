//! Where the server answers, and that a place that is taken is said.

use std::net::TcpListener;

use serde_json::Value;

use crate::Scene;

#[tokio::test]
async fn start_and_status_say_where() {
    let mut scene = Scene::new();
    let status =
        |scene: &Scene| -> Value { serde_json::from_str(&scene.run(&["status", "--json"]).1).unwrap() };
    assert_eq!(status(&scene)["daemon"]["url"], scene.url.as_str());
    let (code, _, said) = scene.run(&["start"]);
    assert!(code == 5 && said.contains("running"), "{code} {said}");
    let (code, _, said) = scene.run(&["start", "--listen", scene.url.trim_start_matches("http://")]);
    assert!(code == 5 && said.contains("running"), "its own port is no stranger's: {code} {said}");
    scene.kill();
    assert_eq!(status(&scene)["daemon"]["url"], Value::Null);

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = taken.local_addr().unwrap().to_string();
    for more in [&[][..], &["-d"]] {
        let (code, out, said) = scene.run(&[&["start", "--listen", &place], more].concat());
        assert!(
            code == 6 && out.is_empty() && said.contains(&place) && said.contains("--listen"),
            "{code} {said}"
        );
    }
    assert_eq!(scene.run(&["start", "--listen", "nowhere"]).0, 2);
    assert_eq!(scene.run(&["start", "--listen", &place, "--no-server"]).0, 2);

    // In the background the same line, and a restart is told anew where to listen.
    let (code, out, said) = scene.run(&["start", "-d", "--listen", "127.0.0.1:0"]);
    assert!(code == 0 && out.starts_with("ready http://127.0.0.1:"), "{out} {said}");
    let (code, out, said) = scene.run(&["restart", "--no-server"]);
    assert_eq!((code, out.as_str()), (0, "ready\n"), "{said}");
    assert_eq!(status(&scene)["daemon"]["url"], Value::Null);
    assert_eq!(scene.run(&["stop"]).0, 0);
}
