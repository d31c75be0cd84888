//! Output that could not be written to the job's JSONL while its attempt ran.

use std::fs;

use crate::{Scene, wait_until};

/// The first attempt fails after there is a file `go`; the second waits for a file `again`.
const FLEET: &str = r"
agents:
  - name: writer
    runtime: command
    command:
      - sh
      - -c
      - |
        if [ -e begun ]; then while [ ! -e again ]; do sleep 0.05; done; echo second words; exit 0; fi
        touch begun; echo first words; while [ ! -e go ]; do sleep 0.05; done; echo last words; exit 3
    retry: {max_attempts: 2, backoff: 1s}
    default_prompt: Write.
";

/// The output of an attempt belongs before that of the next attempt, so it is not written once there is a next attempt.
#[test]
fn late_output_of_an_attempt_does_not_replace_that_of_the_next() {
    let scene = Scene::with(FLEET);
    scene.start();
    let job = scene.json(&["trigger", "writer"])["id"].as_str().unwrap().to_owned();
    let output = || scene.run(&["logs", &job]).stdout;
    wait_until("the first words", || output().contains("first words").then_some(()));
    let jsonl = scene.root.join(format!(".cowhand/jobs/{job}.jsonl"));
    fs::remove_file(&jsonl).unwrap();
    fs::create_dir(&jsonl).unwrap();
    let unwritten = scene.root.join(format!(".cowhand/attempts/{job}.1/unwritten.jsonl"));
    wait_until("the output to be kept in the attempt's folder", || unwritten.exists().then_some(()));
    scene.write("go", "");
    wait_until("the first attempt to be settled", || {
        let job = scene.job(&job);
        (job["status"] == "pending" || job["attempt"] == 2).then_some(())
    });
    fs::remove_dir(&jsonl).unwrap();
    scene.write("again", "");
    wait_until("the job to end", || (scene.job(&job)["status"] == "completed").then_some(()));
    assert!(output().contains("second words"), "{}", output());
    let folder = scene.root.join(format!(".cowhand/attempts/{job}.2"));
    wait_until("the folder of the second attempt to be removed", || (!folder.exists()).then_some(()));
    assert!(unwritten.exists(), "the output of the first attempt is still not written");
    scene.kill_daemon();
    scene.start();
    assert!(output().contains("second words"), "{}", output());
    // The folder of the first attempt is kept as long as the job.
    assert!(unwritten.exists());
}
