//! `cowhand logs`: prints the output of a job.

use std::io::IsTerminal as _;
use std::path::Path;

use clap::Args;
use cowhand_core::id::{AgentName, JobId, JobName};
use cowhand_core::job::{JobRecord, JobStatus};
use jiff::Timestamp;

use super::follow::{FollowUntil, FollowedLines};
use super::location::Connection;
use super::spinner::{Ends, Spinner};
use super::style::{FAINT, styled};
use super::{Exit, Failure, complete, follow, interrupt, job, jobs, location, print};
use cowhand_engine::view::line::{FollowedOutput, plain, readable};
use cowhand_web::api::{ApiProblem, Client, Code, JobResult, JobView, Page};

#[derive(Debug, Args)]
pub(super) struct LogsArgs {
    /// Job, or an agent for its newest job (with `-f`, a running one) [default: the fleet's newest job]
    #[arg(value_name = "JOB|AGENT", add = complete::jobs_and_agents())]
    of: Option<String>,
    /// Continue until the job has ended
    #[arg(short, long)]
    follow: bool,
    /// Print only the final output of the last attempt
    #[arg(long, conflicts_with = "follow")]
    result: bool,
    /// Print the lines as they are stored
    #[arg(long)]
    json: bool,
}

impl LogsArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        location::ask(config, async |client| {
            let id = self.job(client).await?;
            if self.result {
                return self.result(client, &id).await;
            }
            let prints_parts = self.follow && std::io::stdout().is_terminal();
            let mut followed = FollowedOutput::default();
            let spinner = Spinner::new(format!("waiting for the output of {id}"));
            let show = |line: &str| {
                spinner.suspend_for(|| {
                    if self.json {
                        print::json_line(line);
                    } else if prints_parts {
                        let part = followed.add(line);
                        print::part(&part);
                        return if followed.is_in_a_line() { Ends::InsideLine } else { Ends::AtLineStart };
                    } else if let Some(text) = readable(line) {
                        print::line(text);
                    }
                    Ends::AtLineStart
                });
            };
            let view: JobView = follow::get(client, &format!("jobs/{id}")).await?;
            // If the job runs on another node, only the output that is already on this node is printed.
            let follow = self.follow && !runs_elsewhere(&view);
            // The output has a line before each later attempt, which names the attempt. A line for the first attempt is
            // printed here only if the output of other attempts is on other nodes.
            if !self.json && view.output_here.first() == Some(&1) {
                print::line(styled("── attempt 1", FAINT));
            }
            let interrupt_note =
                format!("{id} continues; `cowhand logs {id} -f` follows it, `cowhand cancel {id}` ends it");
            let output = async {
                tokio::select! {
                    // If all output is on another node, the error is reported after the summary.
                    output = follow_output(client, &id, follow, show) => match output {
                        Err(failure) if failure.has_exit(Exit::Refused) && view.elsewhere_sentence().is_some() => {
                            Ok(())
                        }
                        output => output,
                    },
                    () = started_elsewhere(client, &id), if follow => Ok(()),
                }
            };
            let output = Box::pin(interrupt::unless_interrupted(output, Some(&interrupt_note)));
            if follow {
                spinner.during(output).await?;
            } else {
                output.await?;
            }
            let view: JobView = follow::get(client, &format!("jobs/{id}")).await?;
            if !self.json {
                let short = job::summary_line_with_reason(&view, client.is_alone(), Timestamp::now());
                print::line(styled(format!("── {short}"), FAINT));
            }
            match view.elsewhere_sentence() {
                Some(sentence) if view.other_node().is_some() => Err(Failure::new(Exit::Refused, sentence)),
                Some(sentence) => {
                    print::note(sentence);
                    Ok(())
                }
                None => Ok(()),
            }
        })
    }

    async fn result(&self, client: &Client, id: &JobId) -> Result<(), Failure> {
        let answer: JobResult = client.get(&format!("jobs/{id}/result")).await?;
        match &answer.result {
            _ if self.json => print::json(&answer),
            Some(text) => print::line(plain(text.trim_end())),
            None => print::note(format!("{id} is {} and has no output", answer.status)),
        }
        Ok(())
    }

    async fn job(&self, client: &Client) -> Result<JobId, Failure> {
        let newest = match &self.of {
            Some(of) if of.starts_with("job-") => {
                return of.parse().map_err(|error| Failure::usage(format!("{error}")));
            }
            Some(of) => {
                let agent: AgentName = of.parse().map_err(|error| Failure::usage(format!("{error}")))?;
                let newest_of_agent = self.newest(client, &format!("&agent={agent}")).await;
                match (newest_of_agent, of.parse::<JobName>()) {
                    (Ok(job), _) => job,
                    // No agent has this name, but it may be the end of a job's id.
                    (Err(problem), Ok(name)) if problem.code == Code::NotFound => {
                        let job =
                            client.get::<JobRecord>(&format!("jobs/{name}")).await.map_err(|no_job| {
                                // A word without a digit is more likely the wrong name of an agent than the end of a
                                // job's id, unless a removed job has this end.
                                if no_job.is_removed_job()
                                    || of.contains(|letter: char| letter.is_ascii_digit())
                                {
                                    no_job
                                } else {
                                    problem
                                }
                            })?;
                        return Ok(job.id);
                    }
                    (Err(problem), _) => return Err(problem.into()),
                }
            }
            None => self.newest(client, "").await?,
        };
        match newest {
            Some(job) => Ok(job.id),
            None => Err(Failure::new(Exit::Refused, self.no_jobs(client).await?)),
        }
    }

    /// States that there are no jobs, and what to do.
    async fn no_jobs(&self, client: &Client) -> Result<String, Failure> {
        let Some(of) = &self.of else {
            return Ok("there are no jobs yet; `cowhand trigger AGENT` creates one".to_owned());
        };
        let agent: AgentName = of.parse().map_err(|error| Failure::usage(format!("{error}")))?;
        let adopted = jobs::adopted(client, &agent).await?;
        Ok(adopted.first().map_or_else(
            || format!("{agent} has no jobs yet; `cowhand trigger {agent}` creates one"),
            |job| {
                let (sentence, id) = (job.sentence(&agent), &job.id);
                format!("no job has the name of {agent} yet; {sentence}; `cowhand logs -f {id}` follows it")
            },
        ))
    }

    /// Returns the newest job; with `--follow`, a running job if there is one.
    async fn newest(&self, client: &Client, of_agent: &str) -> Result<Option<JobRecord>, ApiProblem> {
        if self.follow {
            let running: Page<JobRecord> =
                client.get(&format!("jobs?limit=1&status=running{of_agent}")).await?;
            if let Some(job) = running.items.into_iter().next() {
                return Ok(Some(job));
            }
        }
        let newest: Page<JobRecord> = client.get(&format!("jobs?limit=1{of_agent}")).await?;
        Ok(newest.items.into_iter().next())
    }
}

/// Returns whether the job runs on another node, which has its output.
fn runs_elsewhere(view: &JobView) -> bool {
    view.job.status == JobStatus::Running && view.other_node().is_some()
}

/// Waits until the job runs on another node.
async fn started_elsewhere(client: &Connection<'_>, id: &JobId) {
    loop {
        tokio::time::sleep(job::WAIT_POLL_INTERVAL).await;
        // If no daemon answers, the code that follows the output reports that.
        let view = client.get::<JobView>(&format!("jobs/{id}")).await;
        if view.is_ok_and(|view| runs_elsewhere(&view)) {
            return;
        }
    }
}

/// Passes on each line of a job's output once, even if the daemon restarts. With `follow`, continues until the job has
/// ended.
pub(super) async fn follow_output(
    client: &Connection<'_>,
    id: &JobId,
    follow: bool,
    on_line: impl FnMut(&str),
) -> Result<(), Failure> {
    let until = if follow { FollowUntil::Ended(id) } else { FollowUntil::Now };
    follow::lines(client, until, &mut JobLines { id, follow, line_count: 0, on_line }).await
}

/// Output of one job.
struct JobLines<'a, F> {
    id: &'a JobId,
    follow: bool,
    line_count: u64,
    on_line: F,
}

impl<F: FnMut(&str)> FollowedLines for JobLines<'_, F> {
    fn address(&self) -> String {
        let (id, follow, after) = (self.id, u8::from(self.follow), self.line_count);
        format!("jobs/{id}/output?follow={follow}&after={after}")
    }

    fn on_line(&mut self, line: &str) {
        (self.on_line)(line);
        self.line_count += 1;
    }
}
