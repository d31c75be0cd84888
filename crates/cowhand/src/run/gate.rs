//! `when_command`: a program that says whether a firing runs.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process_group};

/// It is asked before every firing, so it has to be quick.
const PATIENCE: Duration = Duration::from_mins(1);
const LOOK: Duration = Duration::from_millis(20);

/// Exit code 0 lets the firing run, any other up to 125 does not. A program that cannot be started, is killed, or does
/// not answer has said nothing, and that is an error: what asks for permission does not run without it.
pub(crate) async fn allows(command: &[String], directory: &Path) -> anyhow::Result<bool> {
    let (command, directory) = (command.to_vec(), directory.to_owned());
    let answer = tokio::task::spawn_blocking(move || ask(&command, &directory, PATIENCE));
    answer.await.context("nobody asked")?
}

fn ask(command: &[String], directory: &Path, patience: Duration) -> anyhow::Result<bool> {
    let Some((program, arguments)) = command.split_first() else { bail!("it names no program") };
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {program:?}"))?;
    let status = wait(&mut child, patience);
    // Whatever it left behind goes with it.
    end_group(&child);
    match status?.code() {
        Some(0) => Ok(true),
        Some(1..=125) => Ok(false),
        Some(code) => bail!("{program:?} ended with code {code}, which means that it could not run"),
        None => bail!("{program:?} was killed"),
    }
}

fn wait(child: &mut Child, patience: Duration) -> anyhow::Result<ExitStatus> {
    let until = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() >= until {
            end_group(child);
            child.wait()?;
            bail!("no answer within {}s", patience.as_secs());
        }
        std::thread::sleep(LOOK);
    }
}

fn end_group(child: &Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // An error means that nobody is left in it.
    let _ = group.map(|group| kill_process_group(group, Signal::KILL));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(script: &str, patience: Duration) -> Result<bool, String> {
        let command = ["sh", "-c", script].map(str::to_owned);
        ask(&command, Path::new("/"), patience).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn what_a_command_says() {
        let table = [
            ("exit 0", Ok(true)),
            ("exit 1", Ok(false)),
            ("exit 125", Ok(false)),
            ("exit 127", Err("\"sh\" ended with code 127, which means that it could not run".to_owned())),
            ("kill -9 $$", Err("\"sh\" was killed".to_owned())),
        ];
        for (script, expected) in table {
            assert_eq!(answer(script, PATIENCE), expected, "{script}");
        }
        assert_eq!(
            answer("sleep 100", Duration::from_millis(50)),
            Err("no answer within 0s".to_owned()),
            "and nothing is left of it"
        );
        let missing = ask(&["no-such-program".to_owned()], Path::new("/"), PATIENCE).unwrap_err();
        assert!(missing.to_string().contains("cannot start \"no-such-program\""), "{missing}");
        assert!(ask(&[], Path::new("/"), PATIENCE).is_err());
    }
}
