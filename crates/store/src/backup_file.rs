//! The file of a backup: a copy of an SQLite store and, in an additional table, further files, each cut into parts.

use std::collections::HashSet;
use std::path::Path;

use anyhow::bail;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode};
use sqlx::{ConnectOptions, Connection, Executor, Row};

const BACKUP_FILES_TABLE: &str = "create table backup_files (
    path text not null, part integer not null, bytes blob not null, primary key (path, part)
) strict";

#[derive(Debug)]
pub struct BackupFile(SqliteConnection);

/// Keys of the rows of a store that have files in the state folder.
#[derive(Debug)]
pub struct KnownRows {
    pub jobs: HashSet<String>,
    /// Job and number of each attempt.
    pub attempts: HashSet<(String, i64)>,
    /// The jobs with an attempt that has not ended.
    pub running: HashSet<String>,
    /// Job and number of each hook run that has started.
    pub hooks: HashSet<(String, i64)>,
}

impl BackupFile {
    /// Opens a copy of a store, or a backup.
    pub async fn open(path: &Path) -> anyhow::Result<Self> {
        let options = SqliteConnectOptions::new().filename(path).journal_mode(SqliteJournalMode::Delete);
        Ok(Self(options.connect().await.map_err(damaged)?))
    }

    pub async fn close(self) -> anyhow::Result<()> {
        Ok(self.0.close().await?)
    }

    /// Creates the table for further files.
    pub async fn add_table(&mut self) -> anyhow::Result<()> {
        self.0.execute(BACKUP_FILES_TABLE).await?;
        Ok(())
    }

    pub async fn begin(&mut self) -> anyhow::Result<()> {
        self.0.execute("begin").await?;
        Ok(())
    }

    pub async fn commit(&mut self) -> anyhow::Result<()> {
        self.0.execute("commit").await?;
        Ok(())
    }

    pub async fn add_part(&mut self, name: &str, part: i64, bytes: Vec<u8>) -> anyhow::Result<()> {
        let row = sqlx::query("insert into backup_files (path, part, bytes) values ($1, $2, $3)");
        row.bind(name).bind(part).bind(bytes).execute(&mut self.0).await?;
        Ok(())
    }

    /// Returns a part of a file, counted from 0; `None` after the last part.
    pub async fn part(&mut self, name: &str, part: i64) -> anyhow::Result<Option<Vec<u8>>> {
        let row = sqlx::query("select bytes from backup_files where path = $1 and part = $2");
        let row = row.bind(name).bind(part).fetch_optional(&mut self.0).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Returns the names of the further files; `None` if there is no table for them.
    pub async fn names(&mut self) -> anyhow::Result<Option<Vec<String>>> {
        if !self.has_table("backup_files").await? {
            return Ok(None);
        }
        let rows = sqlx::query("select distinct path from backup_files order by path");
        let rows = rows.fetch_all(&mut self.0).await?;
        let names = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        Ok(Some(names))
    }

    /// Removes the further files, so that the file contains only the store.
    pub async fn remove_files(&mut self) -> anyhow::Result<()> {
        self.0.execute("drop table backup_files").await?;
        self.0.execute("vacuum").await?;
        Ok(())
    }

    /// Checks that the file is a whole store of cowhand, and returns the number of its jobs.
    pub async fn check(&mut self) -> anyhow::Result<u64> {
        let rows = sqlx::query("pragma integrity_check(3)").fetch_all(&mut self.0).await;
        let rows = rows.map_err(damaged)?;
        let problems: Vec<String> = rows.iter().filter_map(|row| row.try_get(0).ok()).collect();
        if problems != ["ok"] {
            bail!("the file is damaged: {}", problems.join("; "));
        }
        for table in ["_sqlx_migrations", "jobs", "events"] {
            if !self.has_table(table).await? {
                bail!("it is not a store of cowhand");
            }
        }
        let row = sqlx::query("select count(*) from jobs").fetch_one(&mut self.0).await?;
        Ok(u64::try_from(row.try_get::<i64, _>(0)?)?)
    }

    pub async fn known_rows(&mut self) -> anyhow::Result<KnownRows> {
        let jobs = self.column("select id from jobs").await?;
        let running = self.column("select job_id from attempts where ended_at is null").await?;
        let attempts = self.pairs("select job_id, number from attempts").await?;
        let hooks = self.pairs("select job_id, number from hook_runs where started_at is not null").await?;
        Ok(KnownRows { jobs, attempts, running, hooks })
    }

    async fn column(&mut self, sql: &'static str) -> anyhow::Result<HashSet<String>> {
        let rows = sqlx::query(sql).fetch_all(&mut self.0).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    async fn pairs(&mut self, sql: &'static str) -> anyhow::Result<HashSet<(String, i64)>> {
        let rows = sqlx::query(sql).fetch_all(&mut self.0).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    async fn has_table(&mut self, name: &str) -> anyhow::Result<bool> {
        let found = sqlx::query("select 1 from sqlite_master where type = 'table' and name = $1").bind(name);
        Ok(found.fetch_optional(&mut self.0).await?.is_some())
    }
}

/// Formats an error. The text of a database error already contains its cause.
fn damaged(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("the file is damaged: {error}")
}
