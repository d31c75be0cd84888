//! A mail server in place of a real one. It speaks SMTP with STARTTLS or TLS and with logins, records the mails that it
//! accepts, and can refuse or lose connections.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// The login that the server accepts.
pub const SMTP_USER: &str = "ops";
pub const SMTP_PASSWORD: &str = "canary-of-the-mail-server";

const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// How connections are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmtpMode {
    /// Without encryption and without logins.
    Plain,
    /// Encrypted on request; a mail needs encryption and a login.
    Starttls,
    /// Encrypted from the beginning; a mail needs a login.
    Tls,
}

/// A mail that the server has accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeMail {
    pub from: String,
    pub to: Vec<String>,
    /// Headers and body, as they were sent.
    pub data: String,
    pub user: Option<String>,
    pub is_encrypted: bool,
}

impl FakeMail {
    /// Returns the value of a header; empty if there is no such header.
    pub fn header(&self, name: &str) -> String {
        let head = self.data.split("\r\n\r\n").next().unwrap_or_default().replace("\r\n ", " ");
        let prefix = format!("{name}: ");
        let line = head.split("\r\n").find_map(|line| line.strip_prefix(&prefix).map(str::to_owned));
        line.unwrap_or_default()
    }
}

#[derive(Debug, Default)]
pub struct FakeSmtpState {
    pub mails: Vec<FakeMail>,
    /// Number of further mails that are refused with a temporary error.
    pub refusals: u32,
    /// Number of further mails that are accepted and whose confirmation is lost with the connection.
    pub lost_answers: u32,
}

#[derive(Debug)]
pub struct FakeSmtp {
    pub address: SocketAddr,
    /// Certificate of the authority that signed the certificate of the server, in PEM form.
    pub ca: String,
    state: Arc<Mutex<FakeSmtpState>>,
}

impl FakeSmtp {
    pub fn start(mode: SmtpMode) -> Self {
        let (tls, ca) = certificate();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(FakeSmtpState::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let (state, tls) = (Arc::clone(&shared), Arc::clone(&tls));
                std::thread::spawn(move || {
                    // A client may close the connection at any time.
                    let _ = serve(stream, mode, &tls, &state);
                });
            }
        });
        Self { address, ca, state }
    }

    pub fn state(&self) -> MutexGuard<'_, FakeSmtpState> {
        self.state.lock().unwrap()
    }

    pub fn mails(&self) -> Vec<FakeMail> {
        self.state().mails.clone()
    }

    /// Writes the certificate of the authority to a file.
    pub fn write_ca(&self, file: &Path) {
        std::fs::write(file, &self.ca).unwrap();
    }
}

/// Makes a certificate for `localhost`, signed by an authority of its own.
fn certificate() -> (Arc<ServerConfig>, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "fake authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let own =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.der().clone()], private)
        .unwrap();
    (Arc::new(config), authority.pem())
}

/// What happens after a part of a connection.
enum Next {
    Close,
    Encrypt,
}

fn serve(
    mut stream: TcpStream,
    mode: SmtpMode,
    tls: &Arc<ServerConfig>,
    state: &Mutex<FakeSmtpState>,
) -> io::Result<()> {
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    let encrypt = |stream: TcpStream| {
        let connection = ServerConnection::new(Arc::clone(tls)).map_err(io::Error::other)?;
        Ok::<_, io::Error>(StreamOwned::new(connection, stream))
    };
    if mode == SmtpMode::Tls {
        return Session::new(encrypt(stream)?, mode, true, state).run(true).map(drop);
    }
    let next = Session::new(stream.try_clone()?, mode, false, state).run(true)?;
    if matches!(next, Next::Encrypt) {
        stream.flush()?;
        Session::new(encrypt(stream)?, mode, true, state).run(false)?;
    }
    Ok(())
}

struct Session<'a, S: Read + Write> {
    stream: BufReader<S>,
    mode: SmtpMode,
    is_encrypted: bool,
    state: &'a Mutex<FakeSmtpState>,
    user: Option<String>,
    from: Option<String>,
    to: Vec<String>,
}

impl<'a, S: Read + Write> Session<'a, S> {
    fn new(stream: S, mode: SmtpMode, is_encrypted: bool, state: &'a Mutex<FakeSmtpState>) -> Self {
        // A client sends nothing after STARTTLS before the answer, so a buffer loses nothing.
        let stream = BufReader::new(stream);
        Self { stream, mode, is_encrypted, state, user: None, from: None, to: Vec::new() }
    }

    fn say(&mut self, line: &str) -> io::Result<()> {
        let stream = self.stream.get_mut();
        stream.write_all(format!("{line}\r\n").as_bytes())?;
        stream.flush()
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }

    fn run(mut self, greets: bool) -> io::Result<Next> {
        if greets {
            self.say("220 localhost ESMTP fake")?;
        }
        loop {
            let line = self.line()?;
            let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
            let rest = rest.to_owned();
            match verb.to_ascii_uppercase().as_str() {
                "EHLO" => self.greet()?,
                "HELO" | "NOOP" | "RSET" => {
                    (self.from, self.to) = (None, Vec::new());
                    self.say("250 ok")?;
                }
                "STARTTLS" if self.mode == SmtpMode::Starttls && !self.is_encrypted => {
                    self.say("220 go ahead")?;
                    return Ok(Next::Encrypt);
                }
                "AUTH" if self.offers_login() => self.log_in(&rest)?,
                "MAIL" if self.needs_login() => self.say("530 5.7.0 Authentication required")?,
                "MAIL" => self.begin(&rest)?,
                "RCPT" if self.from.is_some() => {
                    self.to.push(address(&rest));
                    self.say("250 ok")?;
                }
                "DATA" if !self.to.is_empty() => {
                    if !self.take()? {
                        return Ok(Next::Close);
                    }
                }
                "QUIT" => {
                    self.say("221 bye")?;
                    return Ok(Next::Close);
                }
                _ => self.say("503 5.5.1 Bad sequence of commands")?,
            }
        }
    }

    fn offers_login(&self) -> bool {
        self.is_encrypted && self.mode != SmtpMode::Plain
    }

    fn needs_login(&self) -> bool {
        self.mode != SmtpMode::Plain && self.user.is_none()
    }

    fn greet(&mut self) -> io::Result<()> {
        self.say("250-localhost")?;
        if self.mode == SmtpMode::Starttls && !self.is_encrypted {
            self.say("250-STARTTLS")?;
        }
        if self.offers_login() {
            self.say("250-AUTH PLAIN LOGIN")?;
        }
        self.say("250 8BITMIME")
    }

    fn log_in(&mut self, given: &str) -> io::Result<()> {
        let (method, first) = given.split_once(' ').unwrap_or((given, ""));
        let (user, password) = if method.eq_ignore_ascii_case("LOGIN") {
            let user = self.answer_to("VXNlcm5hbWU6", first)?;
            (user, self.answer_to("UGFzc3dvcmQ6", "")?)
        } else {
            let text = self.answer_to("", first)?;
            let mut parts = text.split('\0').skip(1).map(str::to_owned);
            (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
        };
        if user == SMTP_USER && password == SMTP_PASSWORD {
            self.user = Some(user);
            self.say("235 2.7.0 Accepted")
        } else {
            self.say("535 5.7.8 Username and password not accepted")
        }
    }

    /// Returns the decoded answer of the client, which may have been sent with the command.
    fn answer_to(&mut self, question: &str, given: &str) -> io::Result<String> {
        let answer = if given.is_empty() {
            self.say(&format!("334 {question}"))?;
            self.line()?
        } else {
            given.to_owned()
        };
        let decoded = STANDARD.decode(answer).map_err(io::Error::other)?;
        String::from_utf8(decoded).map_err(io::Error::other)
    }

    fn begin(&mut self, rest: &str) -> io::Result<()> {
        let is_refused = {
            let mut state = self.state.lock().unwrap();
            let is_refused = state.refusals > 0;
            state.refusals = state.refusals.saturating_sub(1);
            is_refused
        };
        if is_refused {
            return self.say("451 4.3.0 Try again later");
        }
        (self.from, self.to) = (Some(address(rest)), Vec::new());
        self.say("250 ok")
    }

    /// Receives a mail. Returns false if the connection is lost.
    fn take(&mut self) -> io::Result<bool> {
        self.say("354 end with a dot")?;
        let mut lines = Vec::new();
        loop {
            match self.line()? {
                line if line == "." => break,
                line => lines.push(line.strip_prefix('.').map(str::to_owned).unwrap_or(line)),
            }
        }
        let is_lost = {
            let mut state = self.state.lock().unwrap();
            state.mails.push(FakeMail {
                from: self.from.take().unwrap_or_default(),
                to: std::mem::take(&mut self.to),
                data: lines.join("\r\n"),
                user: self.user.clone(),
                is_encrypted: self.is_encrypted,
            });
            let is_lost = state.lost_answers > 0;
            state.lost_answers = state.lost_answers.saturating_sub(1);
            is_lost
        };
        if !is_lost {
            self.say("250 2.0.0 Queued")?;
        }
        Ok(!is_lost)
    }
}

/// Returns the address of `FROM:<a@b>` or `TO:<a@b>`.
fn address(text: &str) -> String {
    let text = text.split_once('<').map_or(text, |(_, rest)| rest);
    text.split('>').next().unwrap_or_default().to_owned()
}
