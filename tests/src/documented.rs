//! Command lines that the project shows its users, or runs on its own behalf: each must be one that the program takes.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;

/// A command line, and where it stands: file and line, or the command whose help shows it.
#[derive(Debug)]
pub struct Shown {
    pub place: String,
    /// The program first.
    pub words: Vec<String>,
}

/// Every command line of a program in its help, the README, the book, the workflows, the hooks and the gate.
///
/// # Panics
/// If the repository cannot be read.
pub fn command_lines(program: &Command) -> Vec<Shown> {
    let mut shown = of_help(program, program.get_name());
    shown.extend(of_files(program.get_name()));
    shown
}

/// Those of the examples below a help, its subcommands' included: two blanks, the command, and after more blanks what it does.
fn of_help(command: &Command, program: &str) -> Vec<Shown> {
    let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let examples = help.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| line.starts_with(program));
    let lines =
        examples.filter_map(|line| line.split("  ").next()).flat_map(|line| of_line(&format!("$ {line}"), program));
    let place = format!("help of {}", command.get_name());
    let mut shown: Vec<Shown> = lines.map(|words| Shown { place: place.clone(), words }).collect();
    shown.extend(command.get_subcommands().flat_map(|command| of_help(command, program)));
    shown
}

fn of_files(program: &str) -> Vec<Shown> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is around this crate");
    let mut files = vec![root.join("README.md"), root.join(".ci/run"), root.join(".pre-commit-config.yaml")];
    for (folder, ending) in [("docs", "md"), ("docs/src", "md"), (".github/workflows", "yml")] {
        let entries = fs::read_dir(root.join(folder)).expect("the folder is there");
        let paths = entries.map(|entry| entry.expect("it can be listed").path());
        files.extend(paths.filter(|path| path.extension().is_some_and(|end| end == ending)));
    }
    files.sort();
    files.into_iter().flat_map(|file| of_file(&file, root, program)).collect()
}

fn of_file(file: &PathBuf, root: &Path, program: &str) -> Vec<Shown> {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let name = file.strip_prefix(root).unwrap_or(file).display().to_string();
    let lines = |(line, words)| Shown { place: format!("{name}:{line}"), words };
    of_text(&text, program).into_iter().map(lines).collect()
}

/// The command lines of a text, with the number of the line. Lines that end in a backslash go on in the next one.
fn of_text(text: &str, program: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let mut line = line.to_owned();
        while line.ends_with('\\') {
            line.pop();
            line.push_str(lines.next().map_or("", |(_, next)| next));
        }
        found.extend(of_line(&line, program).into_iter().map(|words| (at + 1, words)));
    }
    found
}

/// What a line has a shell run: behind a prompt, as an entry of a hook, or as a line of a script that begins with the program
/// in a build folder or in a variable of its name.
fn of_line(line: &str, program: &str) -> Vec<Vec<String>> {
    let line = line.trim();
    let (built, variable) = (format!("target/debug/{program}"), format!("\"${program}\""));
    let command = line.strip_prefix("$ ").or_else(|| line.strip_prefix("entry: "));
    let script = [&built, &variable].iter().any(|start| line.starts_with(start.as_str()));
    let Some(command) = command.or(script.then_some(line)) else { return Vec::new() };
    let words = words(command);
    let parts = words.split(|word| ["&&", "||", "|", ";"].contains(&word.as_str()));
    let own = |part: &&[String]| {
        part.first().is_some_and(|first| *first == program || *first == built || *first == format!("${program}"))
    };
    let arguments = |part: &[String]| {
        part[1..].iter().take_while(|word| !word.trim_start_matches('2').starts_with('>')).cloned().collect::<Vec<_>>()
    };
    parts.filter(own).map(|part| [vec![program.to_owned()], arguments(part)].concat()).collect()
}

/// A command line's words as a shell cuts them, as far as is written here: quotes, and comments behind a blank.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match (letter, quote) {
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (letter, Some(open)) if letter == open => quote = None,
            (' ', None) => words.extend(word.take()),
            ('#', None) if word.is_none() => return words,
            (letter, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_where_a_shell_runs_them() {
        let text = "Use `capdb show`.\n$ capdb validate a.yaml   # checks\n  entry: capdb test\ncapdb list\n\
                    $ other x && capdb diff --overlay 'a b' \\\n    --db c | tee capdb\n\"$capdb\" schema --check\n\
                    target/debug/capdb list || true\n$ capdb export --format json 2>/dev/null > capdb.json\n";
        let found = of_text(text, "capdb");
        let lines: Vec<(usize, String)> = found.into_iter().map(|(at, words)| (at, words.join("|"))).collect();
        let expected = [
            (2, "capdb|validate|a.yaml"),
            (3, "capdb|test"),
            (5, "capdb|diff|--overlay|a b|--db|c"),
            (7, "capdb|schema|--check"),
            (8, "capdb|list"),
            (9, "capdb|export|--format|json"),
        ];
        assert_eq!(lines, expected.map(|(at, line)| (at, line.to_owned())));
    }

    #[test]
    fn the_project_shows_commands_of_both_programs() {
        for program in ["capdb", "archway"] {
            let inner = Command::new("serve")
                .after_long_help(format!("Examples:\n  {program} serve MODEL    serves\n    it\n"));
            let shown = command_lines(&Command::new(program).subcommand(inner));
            assert!(shown.len() > 10, "{shown:?}");
            assert_eq!(
                (shown[0].place.as_str(), &shown[0].words[1..]),
                ("help of serve", &["serve".to_owned(), "MODEL".to_owned()][..])
            );
        }
    }
}
