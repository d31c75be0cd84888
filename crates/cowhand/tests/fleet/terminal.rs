//! A terminal for the output of a verb.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::Running;

/// Verb with its standard error on a terminal.
pub(super) struct Shown {
    pub(super) verb: Running,
    screen: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

/// Opens a terminal of this width. Returns the side of the test and the side of the verb.
fn terminal(columns: u16) -> (OwnedFd, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&ours, size).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let mut options = File::options();
    options.read(true).write(true).custom_flags(i32::try_from(OFlags::NOCTTY.bits()).unwrap());
    (ours, options.open(OsStr::from_bytes(name.as_bytes())).unwrap())
}

/// Returns the lines that a verb prints on a terminal of this width, without colours.
pub(super) fn lines_on(mut command: Command, columns: u16) -> Vec<String> {
    let (ours, theirs) = terminal(columns);
    let mut child = command.env("NO_COLOR", "1").stdout(theirs).spawn().unwrap();
    // The command holds the other side open while it exists.
    drop(command);
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    let mut ours = File::from(ours);
    // Reading ends with an error when the other side is closed.
    while let Ok(count @ 1..) = ours.read(&mut part) {
        bytes.extend_from_slice(&part[..count]);
    }
    assert!(child.wait().unwrap().success());
    String::from_utf8(bytes).unwrap().lines().map(|line| line.trim_end_matches('\r').to_owned()).collect()
}

impl Shown {
    pub(super) fn run(mut command: Command, columns: u16) -> Self {
        let (ours, theirs) = terminal(columns);
        command.stderr(theirs);
        let verb = Running::of(&mut command);
        let screen = Arc::<Mutex<Vec<u8>>>::default();
        let all = Arc::clone(&screen);
        let reader = std::thread::spawn(move || {
            let mut part = [0; 4096];
            let mut ours = File::from(ours);
            // Reading ends with an error when the other side is closed.
            while let Ok(count @ 1..) = ours.read(&mut part) {
                all.lock().unwrap().extend_from_slice(&part[..count]);
            }
        });
        Self { verb, screen, reader }
    }

    /// Returns the screen so far.
    pub(super) fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    /// Returns the exit code, standard output, and the whole screen.
    pub(super) fn end(self) -> (Option<i32>, String, String) {
        let said = self.verb.end();
        self.reader.join().unwrap();
        let screen = String::from_utf8(self.screen.lock().unwrap().clone()).unwrap();
        (said.code, said.stdout, screen)
    }
}
