//! TLS of the server, with certificate files. The files are read at the start and at each reload of the config. A
//! problem is an error at the start, and is only logged at a reload.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use cowhand_core::server::TlsConfig as Files;
use jiff::{SignedDuration, Timestamp};
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tracing::{error, info, warn};
use x509_cert::der::Decode as _;

use cowhand_system::named_file::{self, MAX_KEY_BYTES};

/// Time before the end of a certificate at which warnings begin.
const EXPIRY_WARNING_BEFORE: SignedDuration = SignedDuration::from_hours(14 * 24);

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("there is no {what} in PEM form in {}", path.display())]
    Nothing { what: &'static str, path: PathBuf },
    #[error("{} is damaged: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    #[error("the certificate {} does not match the key {}: {source}", files.certificate.display(), files.key.display())]
    Unfit { files: Files, source: rustls::Error },
}

/// The certificate of the server. A reload replaces it with the certificate that is then in the files.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    current: RwLock<Arc<ServerConfig>>,
}

/// A certificate with its key, ready for use.
#[derive(Debug)]
pub struct Certificate {
    config: Arc<ServerConfig>,
    begins: Timestamp,
    ends: Timestamp,
}

impl Tls {
    pub fn open(files: Files) -> Result<Self, TlsError> {
        let certificate = Certificate::read(&files)?;
        certificate.log_validity(Timestamp::now());
        Ok(Self { files, current: RwLock::new(certificate.config) })
    }

    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Reads the files again. Open connections stay open. If the files cannot be used, for example because they are
    /// only half written, the old certificate stays in use.
    pub fn reload(&self) {
        match Certificate::read(&self.files) {
            Ok(certificate) => {
                certificate.log_validity(Timestamp::now());
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = certificate.config;
            }
            Err(error) => error!("the certificate stays as it is: {error}"),
        }
    }
}

impl Certificate {
    pub fn read(files: &Files) -> Result<Self, TlsError> {
        let chain = chain(&files.certificate)?;
        let key = key(&files.key)?;
        let (begins, ends) = validity(&chain, &files.certificate)?;
        let unfit = |source| TlsError::Unfit { files: files.clone(), source };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unfit)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(unfit)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), begins, ends })
    }

    /// Describes the validity of the certificate, and returns whether a person has to act.
    pub fn validity(&self, now: Timestamp) -> (String, bool) {
        let day = |at: Timestamp| at.strftime("%Y-%m-%d").to_string();
        if self.ends <= now {
            (format!("the certificate ended on {}; clients will refuse it", day(self.ends)), true)
        } else if self.begins > now {
            (
                format!("the certificate begins on {}; clients will refuse it until then", day(self.begins)),
                true,
            )
        } else {
            let is_soon = self.ends.duration_since(now) < EXPIRY_WARNING_BEFORE;
            (format!("the certificate is valid until {}", day(self.ends)), is_soon)
        }
    }

    fn log_validity(&self, now: Timestamp) {
        match self.validity(now) {
            (validity, true) => warn!("{validity}"),
            (validity, false) => info!("{validity}"),
        }
    }
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let chain = chain.map_err(|error| pem_error(path, "certificate", &error))?;
    if chain.is_empty() {
        return Err(TlsError::Nothing { what: "certificate", path: path.to_owned() });
    }
    Ok(chain)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| pem_error(path, "private key", &error))
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    named_file::read(path, MAX_KEY_BYTES).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

/// Converts an error of the PEM reader; the message never quotes the file, which may be a key.
fn pem_error(path: &Path, what: &'static str, error: &pem::Error) -> TlsError {
    let path = path.to_owned();
    match error {
        pem::Error::NoItemsFound => TlsError::Nothing { what, path },
        _ => TlsError::Damaged { path, why: format!("its {what} is not in PEM form") },
    }
}

fn validity(chain: &[CertificateDer<'_>], path: &Path) -> Result<(Timestamp, Timestamp), TlsError> {
    let damaged = |why: String| TlsError::Damaged { path: path.to_owned(), why };
    let first = chain.first().map(AsRef::as_ref).unwrap_or_default();
    let certificate = x509_cert::Certificate::from_der(first).map_err(|error| damaged(error.to_string()))?;
    let validity = certificate.tbs_certificate.validity;
    let at = |time: x509_cert::time::Time| {
        i64::try_from(time.to_unix_duration().as_secs())
            .ok()
            .and_then(|seconds| Timestamp::from_second(seconds).ok())
            .ok_or_else(|| damaged("its dates are out of range".to_owned()))
    };
    Ok((at(validity.not_before)?, at(validity.not_after)?))
}
