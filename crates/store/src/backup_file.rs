//! The file of a backup: a copy of an SQLite store and, in an additional table, further files, each cut into parts.

use std::collections::HashSet;
use std::path::Path;

use anyhow::bail;
use jiff::Timestamp;
use rusqlite::OptionalExtension as _;

use crate::database::DriverError;
use crate::database::sqlite::{FileUse, SqliteConnection};

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

/// A token that a store records as revoked.
#[derive(Debug)]
pub struct RevokedToken {
    id: String,
    at: i64,
}

impl RevokedToken {
    /// Returns all revoked tokens of the store in this file, which is not changed.
    pub fn all(path: &Path) -> anyhow::Result<Vec<Self>> {
        let file = SqliteConnection::open(path, FileUse::ReadOnly).map_err(damaged)?;
        let read = |row: &rusqlite::Row<'_>| Ok(Self { id: row.get(0)?, at: row.get(1)? });
        let sql = "select id, revoked_at from tokens where revoked_at is not null";
        let tokens = file
            .connection()
            .prepare(sql)
            .and_then(|mut statement| statement.query_map([], read)?.collect::<Result<Vec<_>, _>>());
        file.close()?;
        tokens.map_err(damaged)
    }
}

impl BackupFile {
    /// Opens a copy of a store, or a backup.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        Ok(Self(SqliteConnection::open(path, FileUse::SingleFile).map_err(damaged)?))
    }

    pub fn close(self) -> anyhow::Result<()> {
        Ok(self.0.close()?)
    }

    /// Creates the table for further files.
    pub fn add_table(&mut self) -> anyhow::Result<()> {
        Ok(self.0.command(BACKUP_FILES_TABLE)?)
    }

    pub fn begin(&mut self) -> anyhow::Result<()> {
        Ok(self.0.command("begin")?)
    }

    pub fn commit(&mut self) -> anyhow::Result<()> {
        Ok(self.0.command("commit")?)
    }

    pub fn add_part(&mut self, name: &str, part: i64, bytes: &[u8]) -> anyhow::Result<()> {
        let insert = "insert into backup_files (path, part, bytes) values (?1, ?2, ?3)";
        self.0.connection().prepare_cached(insert)?.execute((name, part, bytes))?;
        Ok(())
    }

    /// Returns a part of a file, counted from 0; `None` after the last part.
    pub fn part(&mut self, name: &str, part: i64) -> anyhow::Result<Option<Vec<u8>>> {
        let select = "select bytes from backup_files where path = ?1 and part = ?2";
        Ok(self.0.connection().query_row(select, (name, part), |row| row.get(0)).optional()?)
    }

    /// Returns the names of the further files; `None` if there is no table for them.
    pub fn names(&mut self) -> anyhow::Result<Option<Vec<String>>> {
        if !self.has_table("backup_files")? {
            return Ok(None);
        }
        Ok(Some(self.0.column("select distinct path from backup_files order by path")?))
    }

    /// Removes the further files, so that the file contains only the store.
    pub fn remove_files(&mut self) -> anyhow::Result<()> {
        self.0.command("drop table backup_files")?;
        Ok(self.0.command("vacuum")?)
    }

    /// Checks that the file is a whole store of cowhand, and returns the number of its jobs.
    pub fn check(&mut self) -> anyhow::Result<u64> {
        let problems: Vec<String> = self.0.column("pragma integrity_check(3)").map_err(damaged)?;
        if problems != ["ok"] {
            bail!("the file is damaged: {}", problems.join("; "));
        }
        for table in ["_sqlx_migrations", "jobs", "events"] {
            if !self.has_table(table)? {
                bail!("it is not a store of cowhand");
            }
        }
        let jobs: i64 = self.0.connection().query_row("select count(*) from jobs", [], |row| row.get(0))?;
        Ok(u64::try_from(jobs)?)
    }

    /// Revokes the tokens that another store records as revoked. Returns the names of the tokens that were not revoked
    /// in this file before.
    pub fn revoke_tokens(&mut self, revoked: &[RevokedToken]) -> anyhow::Result<Vec<String>> {
        let sql = "update tokens set revoked_at = ?2 where id = ?1 and revoked_at is null returning name";
        let mut statement = self.0.connection().prepare(sql)?;
        let mut names = Vec::new();
        for RevokedToken { id, at } in revoked {
            let rows = statement.query_map((id, at), |row| row.get(0))?;
            names.extend(rows.collect::<Result<Vec<String>, _>>()?);
        }
        Ok(names)
    }

    /// Ends the chats of the backup. Unhandled messages count as handled, and incomplete answers as ended, because they
    /// may have been answered since the backup. The times up to which messages were received are removed, so that
    /// messages since the backup are not read.
    pub fn end_chats(&mut self, now: Timestamp) -> anyhow::Result<()> {
        let ended_at = now.as_microsecond();
        let connection = self.0.connection();
        connection.execute(
            "update chat_answers set state = 'done', ended_at = ?1 where state = 'open'",
            [ended_at],
        )?;
        connection.execute("update chat_messages set body = null where body is not null", [])?;
        connection.execute("delete from chat_inboxes", [])?;
        Ok(())
    }

    pub fn known_rows(&mut self) -> anyhow::Result<KnownRows> {
        let jobs = self.0.column("select id from jobs")?.into_iter().collect();
        let running = self.0.column("select job_id from attempts where ended_at is null")?;
        let attempts = self.pairs("select job_id, number from attempts")?;
        let hooks = self.pairs("select job_id, number from hook_runs where started_at is not null")?;
        Ok(KnownRows { jobs, attempts, running: running.into_iter().collect(), hooks })
    }

    fn pairs(&mut self, sql: &str) -> anyhow::Result<HashSet<(String, i64)>> {
        let mut statement = self.0.connection().prepare(sql)?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn has_table(&self, name: &str) -> anyhow::Result<bool> {
        let find = "select 1 from sqlite_master where type = 'table' and name = ?1";
        Ok(self.0.connection().prepare(find)?.exists([name])?)
    }
}

/// Returns the error for a file that SQLite cannot read.
fn damaged(error: rusqlite::Error) -> anyhow::Error {
    anyhow::anyhow!("the file is damaged: {}", DriverError::from(error))
}
