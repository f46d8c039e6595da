//! Settings that have no use here, or none on the chosen devices: looked at all the same, and named, so that none is dropped in silence.

use std::path::Path;

use anyhow::{Context, Result};
use engine::plan::open_database;

use super::kind::check_pack;
use super::speculation;
use super::tuning;
use crate::settings::{AllReduce, Fusion, LoadFormat, Options};

/// What is about GPUs, where the CPU serves. Errors: a file that is not there, or is of another kind.
pub fn on_cpu(options: &Options) -> Result<Vec<String>> {
    check_files(options)?;
    let algorithm = |wish: Option<AllReduce>| word(wish.map(|wish| wish.to_string()), "auto");
    let asked = [
        ("capdb", options.capdb.clone()),
        ("tuning", word(options.tuning.clone(), tuning::NONE)),
        ("kernels", options.kernels.clone()),
        ("allreduce", algorithm(options.allreduce)),
        ("allreduce-prefill", algorithm(options.allreduce_prefill)),
        ("fusion", word(options.fusion.map(|wish: Fusion| wish.to_string()), "auto")),
        ("max-message", options.max_message.map(|bytes| bytes.0.to_string())),
    ];
    let mut unused = anywhere(options)?;
    unused.extend(sentences(
        &asked,
        "is about GPUs, and the CPU serves: it changes nothing; leave it out, or use --device cuda",
    ));
    Ok(unused)
}

/// What is about the CPU, where GPUs serve. Errors: flags of speculation that contradict each other.
pub fn on_gpus(options: &Options) -> Result<Vec<String>> {
    let asked = [
        ("threads", options.threads.map(|threads| threads.to_string())),
        ("cpu-precision", word(options.cpu_precision.map(|precision| precision.to_string()), "fast")),
    ];
    let mut unused = anywhere(options)?;
    unused.extend(sentences(
        &asked,
        "is about the CPU, and a GPU serves: it changes nothing; leave it out, or use --device cpu",
    ));
    Ok(unused)
}

/// What changes nothing on any device. SGLang and vLLM have a `--seed` too, and it is another one.
fn anywhere(options: &Options) -> Result<Vec<String>> {
    let read = options.load_format != Some(LoadFormat::Dummy);
    let seed = word(options.seed.filter(|_| read).map(|seed| seed.to_string()), "0");
    let mut unused = sentences(
        &[("seed", seed)],
        "is the seed of random weights (--load-format dummy): with weights of a file it changes nothing; for outputs that \
         can be had again give `seed` in requests",
    );
    if options.speculative_adaptive == Some(false) && speculation::asked(options)?.is_none() {
        unused.push(
            "--speculative-adaptive false is about speculation, which is off: it changes nothing; leave it out"
                .to_owned(),
        );
    }
    Ok(unused)
}

/// A word that is not the usual one: settings hold defaults too.
fn word(word: Option<String>, usual: &str) -> Option<String> {
    word.filter(|word| word != usual)
}

fn sentences(asked: &[(&str, Option<String>)], why: &str) -> Vec<String> {
    let given = asked.iter().filter_map(|(flag, value)| Some((flag, value.as_ref()?)));
    given.map(|(flag, value)| format!("--{flag} {value} {why}")).collect()
}

/// A wrong name is wrong also where nothing reads the file.
fn check_files(options: &Options) -> Result<()> {
    let wish = options.tuning.as_deref().filter(|file| *file != tuning::NONE);
    if options.capdb.is_some() || wish.is_some() {
        let database = open_database(options.capdb.as_deref().map(Path::new)).context("--capdb")?;
        tuning::lay(database, wish, None)?;
    }
    check_pack(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{CpuPrecision, Speculative};

    #[test]
    fn every_wish_about_other_devices_is_named() {
        let allreduce = Some(AllReduce::OneShot);
        let options = Options { allreduce, fusion: Some(Fusion::Auto), ..Options::default() };
        let [only] = &on_cpu(&options).unwrap()[..] else { panic!("one wish, one sentence") };
        assert!(only.starts_with("--allreduce one_shot is about GPUs"), "{only}");
        assert_eq!(on_cpu(&Options { tuning: Some("none".to_owned()), ..Options::default() }).unwrap(), [""; 0]);
        let options = Options { threads: Some(3), cpu_precision: Some(CpuPrecision::Exact), ..Options::default() };
        assert_eq!(on_gpus(&options).unwrap().len(), 2);
        let usual = crate::settings::resolve(&Options::default(), None).unwrap().options;
        assert_eq!((on_gpus(&usual).unwrap(), on_cpu(&usual).unwrap()), (Vec::new(), Vec::new()));
        assert_eq!(on_cpu(&options).unwrap(), [""; 0]);
    }

    #[test]
    fn what_changes_nothing_on_any_device_is_named_on_all() {
        let options = Options { seed: Some(5), speculative_adaptive: Some(false), ..Options::default() };
        for named in [on_cpu(&options).unwrap(), on_gpus(&options).unwrap()] {
            let [seed, adaptive] = &named[..] else { panic!("{named:?}") };
            assert!(seed.starts_with("--seed 5 is the seed of random weights"), "{seed}");
            assert!(adaptive.starts_with("--speculative-adaptive false is about speculation"), "{adaptive}");
        }
        let options = Options {
            load_format: Some(LoadFormat::Dummy),
            speculative_algorithm: Some(Speculative::Eagle3),
            ..options
        };
        assert_eq!(on_cpu(&options).unwrap(), [""; 0]);
    }

    #[test]
    fn files_are_looked_at_where_nothing_reads_them() {
        let missing = |options: Options| format!("{:#}", on_cpu(&options).unwrap_err());
        let nowhere = || Some("/nowhere/file".to_owned());
        for (flag, options) in [
            ("--tuning", Options { tuning: nowhere(), ..Options::default() }),
            ("--kernels", Options { kernels: nowhere(), ..Options::default() }),
            ("--capdb", Options { capdb: nowhere(), ..Options::default() }),
        ] {
            let said = missing(options);
            assert!(said.contains(flag) && said.contains("/nowhere/file"), "{said}");
        }
    }
}
