//! The specification of a container for the engine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cowhand_core::sandbox::NetworkAccess;
use serde_json::{Value, json};

use super::DockerError;
use super::leftover::{ATTEMPT_LABEL, STATE_LABEL};
use crate::start::{ContainerSettings, SandboxPlan, StartSpec, VolumeMount};

/// Values of the specification.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContainerSpec<'a> {
    pub(super) start: &'a StartSpec,
    pub(super) sandbox: &'a SandboxPlan,
    pub(super) contained: &'a ContainerSettings,
    pub(super) attempt: &'a str,
    /// Empty folder that is mounted over hidden paths.
    pub(super) nothing: &'a Path,
    pub(super) environment: &'a [(String, String)],
    /// Ids `user:group` with which the container runs, unless the config names a user. They stand for the user of this
    /// process: an engine without root maps the ids `0:0` to this user.
    pub(super) user: &'a str,
    /// Seccomp filter that replaces the filter of the engine.
    pub(super) filter: Option<&'a Path>,
    /// Set if the agent reads a prompt on stdin.
    pub(super) prompted: bool,
    /// Set if an init program passes on signals and reaps processes.
    pub(super) init: bool,
}

impl ContainerSpec<'_> {
    pub(super) fn body(&self) -> Result<Value, DockerError> {
        let (contained, caps) = (self.contained, &self.sandbox.caps);
        let mounts = self.mounts();
        if let Some(odd) =
            mounts.iter().flat_map(|bound| [&bound.from, &bound.to]).find(|path| is_unmountable(path))
        {
            return Err(DockerError::UnmountablePath(odd.clone()));
        }
        let mut labels = contained.labels.clone();
        labels.insert(STATE_LABEL.to_owned(), contained.state.to_string_lossy().into_owned());
        labels.insert(ATTEMPT_LABEL.to_owned(), self.attempt.to_owned());
        let network = match (&self.sandbox.network, contained.host_network) {
            (NetworkAccess::All, true) => "host",
            (NetworkAccess::All, false) => "bridge",
            // Engines cannot restrict ports and hosts; such plans were refused before.
            (NetworkAccess::None | NetworkAccess::Ports(_) | NetworkAccess::Hosts(_), _) => "none",
        };
        let variables =
            self.environment.iter().filter(|(name, _)| !contained.excluded_variables.contains(name));
        let variables: Vec<String> = variables.map(|(name, value)| format!("{name}={value}")).collect();
        let mut host = json!({
            "Mounts": mounts.iter().map(mount).collect::<Vec<_>>(),
            "Tmpfs": self.tmpfs(&mounts),
            "NetworkMode": network,
            "CapDrop": ["ALL"],
            "SecurityOpt": self.security(),
            "ReadonlyRootfs": true,
            "IpcMode": "private",
            "Init": self.init,
            // The output is kept by cowhand, redacted.
            "LogConfig": {"Type": "none"},
        });
        if let Some(bytes) = caps.memory {
            // The same limit for memory with swap means that no swap is available.
            (host["Memory"], host["MemorySwap"]) = (json!(bytes), json!(bytes));
        }
        if let Some(most) = caps.pids {
            host["PidsLimit"] = json!(most);
        }
        if let Some(processors) = caps.cpu {
            host["NanoCpus"] = json!(nano(processors));
        }
        if let Some(shares) = contained.cpu_shares {
            host["CpuShares"] = json!(shares);
        }
        Ok(json!({
            "Image": contained.image,
            // Replaces the entrypoint of the image.
            "Entrypoint": self.start.argv,
            "Cmd": [],
            "WorkingDir": self.start.directory,
            "Env": variables,
            "User": contained.user.as_deref().unwrap_or(self.user),
            "Labels": labels,
            "Healthcheck": {"Test": ["NONE"]},
            "OpenStdin": self.prompted,
            "StdinOnce": self.prompted,
            "AttachStdin": self.prompted,
            "AttachStdout": true,
            "AttachStderr": true,
            "Tty": false,
            "HostConfig": host,
        }))
    }

    fn security(&self) -> Vec<String> {
        let filter = self.filter.map(|filter| format!("seccomp={}", filter.display()));
        ["no-new-privileges".to_owned()].into_iter().chain(filter).collect()
    }

    /// Returns the mounts, parents before children.
    fn mounts(&self) -> Vec<VolumeMount> {
        let SandboxPlan { read, write, hidden, read_only, home_replacements, .. } = self.sandbox;
        let mut mounts: BTreeMap<PathBuf, VolumeMount> = BTreeMap::new();
        let mut put = |from: &Path, to: &Path, writable: bool| {
            mounts.insert(to.to_owned(), VolumeMount { from: from.to_owned(), to: to.to_owned(), writable });
        };
        let within = |path: &Path, outer: &[PathBuf]| outer.iter().any(|outer| path.starts_with(outer));
        // A readable path inside a hidden folder is mounted after that folder.
        let in_hidden = |path: &PathBuf| within(path, hidden);
        for path in read.iter().filter(|path| !within(path, write) && !in_hidden(path)) {
            put(path, path, false);
        }
        for path in write {
            put(path, path, true);
        }
        for path in self.sandbox.pinned() {
            put(&path, &path, true);
        }
        for path in read_only.iter().filter(|path| within(path, write)) {
            put(path, path, false);
        }
        for path in hidden.iter().filter(|path| within(path, write) || within(path, read)) {
            put(if path.is_dir() { self.nothing } else { Path::new("/dev/null") }, path, false);
        }
        for path in read.iter().filter(|path| in_hidden(path)) {
            put(path, path, false);
        }
        for (ours, theirs) in home_replacements {
            put(ours, theirs, true);
        }
        for VolumeMount { from, to, writable } in &self.contained.volumes {
            put(from, to, *writable);
        }
        mounts.into_values().collect()
    }

    /// Returns the temporary file systems: their paths and mount options.
    fn tmpfs(&self, mounts: &[VolumeMount]) -> BTreeMap<String, String> {
        let home = self.sandbox.home.iter().filter(|home| {
            home.parent().is_some() && !mounts.iter().any(|bound| home.starts_with(&bound.to))
        });
        let own = ["/tmp", "/var/tmp"].into_iter().map(PathBuf::from).chain(home.cloned());
        let own = own.filter(|path| !mounts.iter().any(|bound| bound.to == *path));
        let own = own
            .map(|path| (path.to_string_lossy().into_owned(), "rw,exec,nosuid,nodev,mode=1777".to_owned()));
        let more = self.contained.tmpfs.iter().map(|text| {
            let (path, options) = text.split_once(':').unwrap_or((text, ""));
            (path.to_owned(), options.to_owned())
        });
        own.chain(more).collect()
    }
}

fn mount(bound: &VolumeMount) -> Value {
    json!({"Type": "bind", "Source": bound.from, "Target": bound.to, "ReadOnly": !bound.writable})
}

/// Returns true for a path that is not UTF-8 or contains a comma, a quote or a control character. Some engines cannot
/// mount such a path, because they parse mounts as comma-separated lists.
fn is_unmountable(path: &Path) -> bool {
    path.to_str()
        .is_none_or(|path| path.contains(|sign: char| matches!(sign, ',' | '"') || sign.is_control()))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the config bounds it to 1024 processors"
)]
fn nano(processors: f64) -> u64 {
    (processors * 1e9) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::StopSignal;
    use cowhand_core::sandbox::{Caps, SandboxKind};

    fn paths<const N: usize>(paths: [&str; N]) -> Vec<PathBuf> {
        paths.map(PathBuf::from).into()
    }

    fn body(sandbox: &SandboxPlan) -> Result<Value, DockerError> {
        let argv = ["sh", "-c", "x"].map(str::to_owned).into();
        let start = StartSpec {
            argv,
            directory: "/w".into(),
            stop_signal: StopSignal::Terminate,
            grace_ms: 1,
            reader: None,
            input: None,
            limits: None,
            sandbox: None,
            program: None,
            rules: None,
        };
        let contained = sandbox.container.clone().unwrap_or_default();
        let environment = [("PATH", "/outside"), ("A", "b=c")];
        ContainerSpec {
            start: &start,
            sandbox,
            contained: &contained,
            attempt: "job-1.1",
            nothing: Path::new("/nothing"),
            environment: &environment.map(|(name, value)| (name.to_owned(), value.to_owned())),
            user: "5:6",
            filter: None,
            prompted: true,
            init: true,
        }
        .body()
    }

    fn sandbox() -> SandboxPlan {
        let contained = ContainerSettings {
            image: "i".into(),
            excluded_variables: vec!["PATH".into()],
            state: "/w/.state".into(),
            labels: BTreeMap::from([(STATE_LABEL.to_owned(), "a lie".to_owned())]),
            ..ContainerSettings::default()
        };
        SandboxPlan {
            kind: SandboxKind::Docker,
            home: Some("/home/u".into()),
            read: paths(["/books", "/w/in", "/w/.state/private"]),
            write: paths(["/w", "/home/u/.claude"]),
            hidden: paths(["/w/.state", "/home/u/.ssh"]),
            read_only: paths(["/w/cowhand.yaml", "/else"]),
            container: Some(contained),
            ..SandboxPlan::default()
        }
    }

    #[test]
    fn paths_are_mounted_read_only_or_writable() {
        let body = body(&sandbox()).unwrap();
        let mounts = body["HostConfig"]["Mounts"].as_array().unwrap().iter().map(|mount| {
            let way = if mount["ReadOnly"].as_bool().unwrap() { "ro" } else { "rw" };
            format!("{} {} {way}", mount["Source"].as_str().unwrap(), mount["Target"].as_str().unwrap())
        });
        assert_eq!(
            mounts.collect::<Vec<_>>(),
            [
                "/books /books ro",
                "/home/u/.claude /home/u/.claude rw",
                "/w /w rw",
                // The path does not exist in this test, so it counts as a file.
                "/dev/null /w/.state ro",
                "/w/.state/private /w/.state/private ro",
                "/w/cowhand.yaml /w/cowhand.yaml ro",
            ]
        );
        let tmpfs: Vec<&String> = body["HostConfig"]["Tmpfs"].as_object().unwrap().keys().collect();
        assert_eq!(tmpfs, ["/home/u", "/tmp", "/var/tmp"]);
    }

    #[test]
    fn limits_and_restrictions_are_set_on_the_container() {
        let caps = Caps { memory: Some(1000), pids: Some(9), cpu: Some(0.5) };
        let body = body(&SandboxPlan { caps, ..sandbox() }).unwrap();
        let host = &body["HostConfig"];
        assert_eq!(
            (&host["Memory"], &host["MemorySwap"], &host["PidsLimit"], &host["NanoCpus"]),
            (&json!(1000), &json!(1000), &json!(9), &json!(500_000_000))
        );
        assert_eq!((&host["NetworkMode"], &host["CapDrop"]), (&json!("none"), &json!(["ALL"])));
        assert_eq!((&host["ReadonlyRootfs"], &body["User"]), (&json!(true), &json!("5:6")));
        assert_eq!((&body["Env"], &body["Entrypoint"]), (&json!(["A=b=c"]), &json!(["sh", "-c", "x"])));
        // Labels of the config do not replace the label of the fleet.
        assert_eq!(body["Labels"][STATE_LABEL], "/w/.state");
    }

    #[test]
    fn networks_are_mapped_and_odd_paths_are_refused() {
        for (network, host, expected) in [
            (NetworkAccess::None, true, "none"),
            (NetworkAccess::All, false, "bridge"),
            (NetworkAccess::All, true, "host"),
            (NetworkAccess::Ports(vec![1]), false, "none"),
        ] {
            let mut sandbox = SandboxPlan { network, ..sandbox() };
            sandbox.container.as_mut().unwrap().host_network = host;
            assert_eq!(body(&sandbox).unwrap()["HostConfig"]["NetworkMode"], expected);
        }
        for odd in ["/a,ro=false", "/a\"", "/a\nb"] {
            let refused = body(&SandboxPlan { write: paths([odd]), ..sandbox() }).unwrap_err().to_string();
            assert!(refused.contains("contains a comma"), "{refused}");
        }
    }
}
