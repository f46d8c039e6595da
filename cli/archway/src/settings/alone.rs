//! Settings of commands that serve nothing over HTTP: a demonstration, measurements of the engine.

use anyhow::{Result, bail};
use clap::{Arg, Args, Command};

use super::layers::to_map;
use super::{Options, resolve};

/// Heading of the flags that are about connections and clients.
const SERVER: &str = "Server";

/// Flags over defaults. Errors: those of [`resolve`]; a flag that only a server has a use for.
pub fn resolve_alone(flags: &Options) -> Result<Options> {
    let given = to_map(flags)?;
    for argument in
        Options::augment_args(Command::new("keys")).get_arguments().filter(|argument| is_of_server(argument))
    {
        let Some(name) = argument.get_long().filter(|name| given.contains_key(*name)) else { continue };
        bail!("--{name} is about a server, and this command serves nothing over HTTP; leave it out");
    }
    Ok(resolve(flags, None)?.options)
}

/// Leaves what [`resolve_alone`] refuses out of a command's help.
pub fn hide_of_server(argument: Arg) -> Arg {
    let hidden = is_of_server(&argument);
    if hidden { argument.hide(true) } else { argument }
}

fn is_of_server(argument: &Arg) -> bool {
    argument.get_help_heading() == Some(SERVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_of_the_server_is_refused_by_its_name() {
        let port = Options { port: Some(0), ..Options::default() };
        assert!(resolve_alone(&port).unwrap_err().to_string().starts_with("--port is about a server"));
        let keys = Options { api_key: Some(vec!["key".to_owned()]), ..Options::default() };
        assert!(resolve_alone(&keys).unwrap_err().to_string().starts_with("--api-key is about a server"));
        let others = Options { threads: Some(2), max_num_seqs: Some(4), ..Options::default() };
        assert_eq!(resolve_alone(&others).unwrap(), resolve(&others, None).unwrap().options);
    }
}
