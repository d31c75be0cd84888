//! The messages between the daemon and its spawner. The launcher starts a spawner only from its own version of the
//! program, so the messages need no version.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use super::super::attempt::PreparedLaunch;

/// Length of the header of a request. The header contains the length of the text that follows.
const HEADER_BYTES: usize = size_of::<u64>();
/// Descriptors that a request contains: the lock and the log of the keeper.
const DESCRIPTORS: usize = 2;

/// Request to make a keeper. The environment may contain secrets, so a request is never written to a file.
#[derive(Serialize, Deserialize)]
pub(super) struct KeeperRequest {
    pub(super) folder: PathBuf,
    /// Environment of the keeper, which passes it on to the agent.
    pub(super) environment: Vec<(String, String)>,
}

impl KeeperRequest {
    /// Sends the request with copies of the keeper's descriptors.
    pub(super) fn send(&self, mut socket: &UnixStream, launch: &PreparedLaunch) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        let mut message = (text.len() as u64).to_ne_bytes().to_vec();
        message.extend(text);
        let descriptors = [launch.lock.as_fd(), launch.log.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let sent = sendmsg(socket, &[IoSlice::new(&message)], &mut ancillary, SendFlags::NOSIGNAL)?;
        socket.write_all(&message[sent..])
    }

    /// Overwrites the values of the environment, so that later copies of the spawner do not contain the secrets of this
    /// request.
    pub(super) fn clear(self) {
        for (_, value) in self.environment {
            let mut bytes = value.into_bytes();
            bytes.fill(0);
            black_box(&bytes);
        }
    }

    /// Returns whether the request can be sent and carried out. If the path is not UTF-8, or if the environment
    /// contains a variable that a process cannot set for itself, the program has to be executed for the keeper.
    pub(super) fn is_possible(&self) -> bool {
        let is_valid = |(name, value): &(String, String)| {
            !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
        };
        self.folder.to_str().is_some() && self.environment.iter().all(is_valid)
    }

    /// Receives a request; `None` if the daemon has closed the socket.
    pub(super) fn receive(mut socket: &UnixStream) -> io::Result<Option<(Self, PreparedLaunch)>> {
        let mut header = [0; HEADER_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut buffer = [IoSliceMut::new(&mut header)];
        let received = recvmsg(socket, &mut buffer, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let mut descriptors: Vec<OwnedFd> = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        socket.read_exact(&mut header[received.bytes..])?;
        let length = usize::try_from(u64::from_ne_bytes(header)).map_err(io::Error::other)?;
        let mut text = vec![0; length];
        socket.read_exact(&mut text)?;
        let mut files = descriptors.into_iter().map(File::from);
        let (Some(lock), Some(log)) = (files.next(), files.next()) else {
            return Err(io::Error::other("a request without descriptors"));
        };
        let request = serde_json::from_slice(&text)?;
        text.fill(0);
        black_box(&text);
        Ok(Some((request, PreparedLaunch { lock, log })))
    }
}

/// Returns the answer for an error: its number, negated.
pub(super) fn refusal(error: &io::Error) -> i32 {
    -error.raw_os_error().unwrap_or(libc::EIO)
}

/// Receives the answer to a request: the process id of the keeper, or why there is none.
pub(super) fn receive_answer(mut socket: &UnixStream) -> io::Result<io::Result<i32>> {
    let mut answer = [0; size_of::<i32>()];
    socket.read_exact(&mut answer)?;
    let answer = i32::from_ne_bytes(answer);
    Ok(if answer > 0 { Ok(answer) } else { Err(io::Error::from_raw_os_error(-answer)) })
}
