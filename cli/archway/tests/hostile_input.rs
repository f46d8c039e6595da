//! Input that somebody made to hang, to hide or to break something: each is refused by name, and nothing waits forever.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

const SHAPE: &str = "models/shapes/llama-3.1-8b.json";
const TINY: &str = "engine/tests/config/llama-tiny.json";

/// Ends with code 124 where the program hangs.
fn archway(arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["20", env!("CARGO_BIN_EXE_archway")]).args(arguments).current_dir(root()).output().unwrap()
}

/// What a refusal says.
fn refused(arguments: &[&str]) -> String {
    let output = archway(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    said
}

fn pipe(path: &Path) -> String {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    path.display().to_string()
}

#[test]
fn pipes_are_refused_wherever_a_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let below = |name: &str| pipe(&folder.path().join(name));
    let (plain, json, gguf) = (below("pipe"), below("pipe.json"), below("pipe.gguf"));
    let (inside, database) = (below("model/config.json"), below("database/arch/sm90.yaml"));
    let [model, database] = [&inside, &database].map(|file| {
        let file = Path::new(file);
        let up = if file.ends_with("config.json") { 1 } else { 2 };
        file.ancestors().nth(up).unwrap().display().to_string()
    });
    let dummy = ["bench", "latency", "--model", TINY, "--load-format", "dummy", "--device", "cpu"];
    for arguments in [
        vec!["plan", SHAPE, "--config", &plain],
        vec!["serve", SHAPE, "--config", &plain],
        vec!["config", "show", "--config", &plain],
        vec!["plan", SHAPE, "--tuning", &plain],
        vec!["plan", SHAPE, "--gpu", "h200", "--tuning", &plain],
        vec!["plan", SHAPE, "--kernels", &plain],
        vec!["plan", SHAPE, "--gpu", "h200", "--capdb", &database],
        vec!["plan", &json],
        vec!["plan", &gguf],
        vec!["plan", &model],
        vec!["serve", &gguf],
        vec!["plan", TINY, "--speculative-draft-model-path", &model],
        vec!["bench", "eagle3", "--model", TINY, "--speculative-draft-model-path", "nowhere", "--prompts", &plain],
        vec!["tune", "--from", &plain],
        vec!["tune", "--from", "engine/tests/data/tuning/two-h200.json", "--out", &plain],
        [&dummy[..], &["--chat-template", &plain]].concat(),
        [&dummy[..], &["--tokenizer", &plain]].concat(),
        [&dummy[..], &["--tokenizer", &model]].concat(),
    ] {
        let said = refused(&arguments);
        assert!(said.contains("regular file") || said.contains("tokenizer.json"), "{arguments:?}: {said}");
    }
}

#[test]
fn nothing_in_a_file_steers_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let steering = "\u{1b}[2J\u{9b}31m\u{202e}";
    let shape = std::fs::read_to_string(root().join(SHAPE)).unwrap();
    let mut shape: serde_json::Value = serde_json::from_str(&shape).unwrap();
    shape["architectures"] = serde_json::json!([format!("{steering}ForCausalLM")]);
    let file = folder.path().join(format!("{steering}.json"));
    std::fs::write(&file, shape.to_string()).unwrap();
    let config = folder.path().join("settings.yaml");
    std::fs::write(&config, "\"po\\e[31mrt\": 1\n").unwrap();
    let (file, config) = (file.display().to_string(), config.display().to_string());
    for arguments in [
        vec!["plan", &file],
        vec!["plan", &file, "--gpu", "h200"],
        vec!["plan", &file, "--gpu", "h200", "--json"],
        vec!["serve", &file, "--load-format", "dummy", "--device", "cpu"],
        vec!["plan", SHAPE, "--config", &config],
    ] {
        let output = archway(&arguments);
        let all = [output.stdout.clone(), output.stderr].concat();
        let said = String::from_utf8(all).unwrap();
        assert!(said.contains("\\u001b["), "{arguments:?}: {said}");
        let controls = said.chars().find(|letter| letter.is_control() && *letter != '\n' || *letter == '\u{202e}');
        assert_eq!(controls, None, "{arguments:?}: {said:?}");
        if arguments.contains(&"--json") {
            let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(plan["model"]["architecture"].as_str().unwrap().starts_with(steering));
        }
    }
}

/// What `serve` refuses, `plan` refuses too, on GPUs and on the CPU.
#[test]
fn a_plan_refuses_the_numbers_that_a_start_refuses() {
    for (flag, value) in [
        ("--max-model-len", "0"),
        ("--port", "-1"),
        ("--seed", "-1"),
        ("--served-model-name", ""),
        ("--api-key", ""),
        ("--api-key", "a\nb"),
        ("--host", " "),
        ("--chat-template", ""),
        ("--tokenizer", ""),
        ("--capdb", ""),
        ("--tuning", ""),
        ("--max-num-seqs", "0"),
        ("--max-num-batched-tokens", "0"),
        ("--max-total-tokens", "0"),
        ("--kv-cache-memory-bytes", "0"),
        ("--max-message", "0"),
        ("--max-outputs", "0"),
        ("--max-body-size", "0"),
        ("--tensor-parallel-size", "0"),
        ("--speculative-num-steps", "0"),
        ("--gpu-memory-utilization", "0"),
    ] {
        for line in [vec!["plan", SHAPE], vec!["plan", SHAPE, "--gpu", "h200"], vec!["serve", SHAPE]] {
            let said = refused(&[&line[..], &[flag, value]].concat());
            assert!(said.contains(flag), "{line:?} {flag}: {said}");
        }
    }
}

#[test]
fn a_plan_refuses_what_a_start_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("settings.yaml");
    std::fs::write(&settings, "tp-size: 3\n").unwrap();
    let (settings, nowhere) = (settings.display().to_string(), "/nowhere/file");
    let gpu = ["plan", SHAPE, "--gpu", "h200"];
    let cpu = ["plan", TINY];
    let eagle = ["--speculative", "eagle3"];
    for (line, more, said) in [
        (&gpu[..], vec!["--kernels", nowhere], nowhere),
        (&gpu, vec!["--kernels", SHAPE], "--kernels"),
        (&gpu, vec!["--dtype", "float32"], "--dtype float32"),
        (&cpu, vec!["--dtype", "bfloat16"], "--dtype bfloat16"),
        (&gpu, vec!["--max-model-len", "1000000"], "--max-model-len 1000000"),
        (&gpu, vec!["--device", "cpu"], "contradict each other"),
        (&cpu, vec!["--device", "cuda"], "--gpu"),
        (&gpu, vec!["--max-total-tokens", "4k", "--kv-cache-memory-bytes", "1GiB"], "not both"),
        (&gpu, vec!["--max-total-tokens", "1000000000"], "lower --max-total-tokens"),
        (&cpu, vec!["--max-total-tokens", "15"], "raise --max-total-tokens"),
        (&cpu, vec!["--kv-cache-memory-bytes", "1"], "raise --kv-cache-memory-bytes"),
        (&gpu, vec!["--tokenizer", nowhere], nowhere),
        (&gpu, vec!["--chat-template", nowhere], nowhere),
        (&gpu, vec!["--chat-template", "{% if %}"], "chat-template"),
        (&gpu, vec!["--config", &settings], "heads_not_divisible"),
        (&gpu, vec!["--nodes", "0"], "--nodes"),
        (&gpu, vec!["--nodes", "2"], "--nodes 2: more machines than ranks"),
        (&gpu, vec!["--tp", "2", "--nodes", "2", "--strict"], "several machines, and one server runs on one"),
        (&["plan", SHAPE, "--gpu", "gb10"], vec!["--tp", "2", "--strict"], "several machines"),
        (&gpu, vec!["--count", "0"], "--count"),
        (&cpu, vec!["--count", "2"], "--gpu"),
        (&cpu, vec!["--max-num-batched-tokens=-1"], "`-1` is not a number"),
        (&["serve", TINY], vec!["--load-format", "dummy", "--mock-interval", "5"], "--mock-engine"),
        (&cpu, vec!["--served-model-name", "a", "b", "a"], "`a` is there twice"),
        (&gpu, vec!["--count", "99999999999"], "--count"),
        (&gpu, vec!["--model", TINY], "two models"),
        (&gpu, vec!["--draft-hidden", "64"], "--draft-hidden"),
        (&gpu, [&eagle[..], &["--speculative-draft-model-path", nowhere]].concat(), nowhere),
    ] {
        let output = archway(&[line, &more].concat());
        let all = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(2), "{line:?} {more:?}: {all}");
        assert!(all.contains(said) && !all.contains("panicked"), "{line:?} {more:?}: {all}");
    }
    // What has no files is imagined, and said to be: a start needs it.
    for (size, counted) in [
        (&[][..], "weights (without --draft-size) and its cache are not counted"),
        (&["--draft-size", "3GiB"], "3.00 GiB of weights"),
    ] {
        let output = archway(&[&gpu[..], &eagle, size].concat());
        let all = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && all.contains("one is imagined: hidden size"), "{all}");
        assert!(all.contains(counted) && all.contains("draft 3.00 GiB") != size.is_empty(), "{all}");
    }
    let golden = "tests/golden/eagle3-tiny";
    let (target, draft) = (format!("{golden}/target"), format!("{golden}/draft"));
    let output = archway(&["plan", &target, "--gpu", "h200", "--speculative-draft-model-path", &draft]);
    let all = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && all.contains(", draft 0.") && !all.contains("imagined"), "{all}");
}

/// Numbers that no benchmark can carry out: nothing is allocated, and nothing panics.
#[test]
fn benchmarks_refuse_numbers_by_name() {
    let huge = u64::MAX.to_string();
    for (command, flag, value) in [
        ("throughput", "--num-prompts", "99999999999"),
        ("throughput", "--warmup", &*huge),
        ("throughput", "--runs", "0"),
        ("latency", "--batch-size", "99999999"),
        ("latency", "--warmup", &huge),
        ("latency", "--output-len", "0"),
        ("serve", "--request-rate", "1e-300"),
        ("serve", "--request-rate", "nan"),
        ("serve", "--max-concurrency", &huge),
        ("serve", "--max-concurrency", "0"),
        ("serve", "--num-prompts", &huge),
        ("serve", "--base-url", "127.0.0.1:8000"),
        ("frontend", "--duration", "1e300"),
        ("frontend", "--duration", "0"),
        ("frontend", "--warmup", "inf"),
        ("frontend", "--connections", &huge),
        ("eagle3", "--batch-size", &huge),
        ("allreduce", "--soak", &huge),
    ] {
        let said = refused(&["bench", command, flag, value]);
        assert!(said.contains(flag), "{command} {flag} {value}: {said}");
    }
    for (flag, value) in [("--temperature", "nan"), ("--temperature", "1e9"), ("--max-tokens", "0")] {
        assert!(refused(&["demo", "--mock-engine", flag, value]).contains(flag));
    }
}

#[test]
fn commands_that_serve_nothing_refuse_flags_of_a_server() {
    let commands: [&[&str]; 4] = [&["demo"], &["bench", "latency"], &["bench", "throughput"], &["bench", "eagle3"]];
    for command in commands {
        for (flag, value) in [("--port", "1"), ("--api-key", "key"), ("--max-body-size", "1MiB")] {
            let said = refused(&[command, &["--mock-engine", flag, value]].concat());
            assert!(said.contains(&format!("{flag} is about a server")), "{command:?}: {said}");
        }
        let help = archway(&[command, &["--help"]].concat());
        let help = String::from_utf8_lossy(&help.stdout);
        assert!(help.contains("--threads") && !help.contains("--port"), "{command:?}: {help}");
    }
}

#[test]
fn wishes_about_the_cpu_are_named_where_gpus_are_planned() {
    let plan = |more: &[&str]| {
        let line = ["plan", SHAPE, "--gpu", "h200", "--json", "--threads", "3", "--cpu-precision", "exact"];
        let output = archway(&[&line[..], more].concat());
        let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), plan)
    };
    let named = |list: &serde_json::Value| {
        let list = list.to_string();
        list.contains("--threads 3 is about the CPU") && list.contains("--cpu-precision exact is about the CPU")
    };
    let (code, said) = plan(&[]);
    assert!(code == Some(0) && named(&said["warnings"]), "{said}");
    let (code, said) = plan(&["--strict"]);
    assert!(code == Some(2) && named(&said["refusals"]), "{said}");
}

#[test]
fn who_is_strict_gets_no_plan_that_cannot_be_served() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    let shape = std::fs::read_to_string(root().join(SHAPE)).unwrap();
    let mut shape: serde_json::Value = serde_json::from_str(&shape).unwrap();
    shape["head_dim"] = 256.into();
    std::fs::write(&file, shape.to_string()).unwrap();
    let file = file.display().to_string();
    let plan = |more: &[&str]| {
        let output = archway(&[&["plan", &file, "--gpu", "h200", "--json"], more].concat());
        let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), plan)
    };
    let (code, doubtful) = plan(&[]);
    assert_eq!((code, &doubtful["refusals"]), (Some(0), &serde_json::json!([])));
    assert!(doubtful["warnings"].to_string().contains("cannot be served"));
    let (code, strict) = plan(&["--strict"]);
    assert_eq!(code, Some(2));
    assert!(strict["refusals"].to_string().contains("this plan cannot be served"), "{strict}");
}

#[test]
fn a_tuning_that_is_replaced_is_kept() {
    let home = tempfile::tempdir().unwrap();
    let tune = || {
        let output = Command::new(env!("CARGO_BIN_EXE_archway"))
            .current_dir(root())
            .env("XDG_DATA_HOME", home.path())
            .args(["tune", "--from", "engine/tests/data/tuning/two-h200.json"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let file = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
        (file, String::from_utf8(output.stderr).unwrap())
    };
    let (file, _) = tune();
    let (same, said) = tune();
    assert!(same == file && file.starts_with(home.path()) && !said.contains("kept"), "{said}");
    std::fs::write(&file, "# mine\n").unwrap();
    let (_, said) = tune();
    let kept = file.with_file_name("h200.1.yaml");
    assert!(said.contains(&format!("kept as {}", kept.display())), "{said}");
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "# mine\n");
}
