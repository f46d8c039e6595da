use std::process::ExitCode;

use anyhow::{Result, bail};
use capdb_tool::patch::{self, Options, Outcome, Plan, Release};

use super::{InstallationArgs, MachineArgs};
use crate::output::{self, FormatArgs};
use crate::source::Source;

/// Close gaps with the smallest edit: rows are added to tables, and a gate that is named lets the GPU through.
///
/// A row that would take no effect on this card is refused, and so is a value that nobody checked on it. The rest of each file
/// stays byte for byte; the original is kept, and `capdb patch revert` restores it.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  capdb patch apply --project vllm --path .venv/lib/python3.12/site-packages --gpu b300 --dry-run
                                               a unified diff on stdout; nothing is written
  capdb patch apply --project vllm --path .venv/lib/python3.12/site-packages --gpu b300
  capdb patch apply --project sglang --path site-packages --gpu rtx-pro-6000 --only sglang-symm-mem-max-sizes --allow-guessed --force
                                               ends the KeyError; the feature stays off all the same

Exit codes: 0 edited (or would be), 1 refused or nothing to do, 2 cannot: unknown release or shape, not writable, in use.")]
pub struct Args {
    #[command(flatten)]
    installation: InstallationArgs,
    #[command(flatten)]
    machine: MachineArgs,
    /// Only this place; may be repeated. `capdb patch list` shows them. A gate is opened only if it is named here.
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Print a unified diff, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Write a row that takes no effect on this card.
    #[arg(long)]
    force: bool,
    /// Write a value that nobody checked on this card.
    #[arg(long)]
    allow_guessed: bool,
    #[command(flatten)]
    format: FormatArgs,
}

pub fn run(args: &Args, source: &Source) -> Result<ExitCode> {
    let card = args.machine.card(source)?;
    let records = args.installation.records(source)?;
    let release = args.installation.find()?;
    let options = Options { only: args.only.clone(), force: args.force, allow_guessed: args.allow_guessed };
    let plan = patch::plan(&release, &card, &records, &options)?;
    if args.dry_run {
        return dry_run(args, &release, &plan);
    }
    let outcome = if plan.files.is_empty() { Outcome::default() } else { patch::carry_out(&release, &plan)? };
    if outcome.written {
        let report = patch::check(&release, &card, &records)?;
        let edited = |id: &String| plan.files.iter().any(|edit| edit.records.contains(id));
        if let Some(open) = report.findings.iter().find(|it| edited(&it.id) && !it.is_covered()) {
            bail!(
                "{}: written, and does not read back as covered; `capdb patch revert` restores the original",
                open.id
            );
        }
    }
    print(args, &plan, &outcome)?;
    Ok(ExitCode::from(plan.exit_code()))
}

/// The diff is data; the reasons are talk.
fn dry_run(args: &Args, release: &Release, plan: &Plan) -> Result<ExitCode> {
    let looked = patch::would_be_refused(release, plan);
    let refused = looked.as_ref().err().map(ToString::to_string);
    let outcome = Outcome { processes: looked.unwrap_or_default(), refused, ..Outcome::default() };
    if args.format.is_json() {
        print(args, plan, &outcome)?;
    } else {
        output::talk(format_args!("{}", plan.to_text(&outcome)));
        output::text_of_files(&plan.files.iter().map(|edit| edit.diff()).collect::<String>())?;
    }
    let code = if outcome.refused.is_some() { 2 } else { plan.exit_code() };
    Ok(ExitCode::from(code))
}

fn print(args: &Args, plan: &Plan, outcome: &Outcome) -> Result<()> {
    if args.format.is_json() { output::json(&plan.to_json(outcome)) } else { output::data(&plan.to_text(outcome)) }
}
