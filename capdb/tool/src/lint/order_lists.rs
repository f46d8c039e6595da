use capdb::load::FileKind;
use capdb::problem::Problem;
use capdb::record::Topology;
use capdb::yaml::Node;

use super::{Check, Lint, Tree};

pub static LINT: Lint = Lint {
    name: "order-lists",
    about: "order.yaml has a list for every topology; each ends with `nccl` and repeats nothing.",
    check: Check::Tree(check),
};

fn check(tree: &Tree<'_>, problems: &mut Vec<Problem>) {
    let Some((loaded, root)) = tree.single(FileKind::Order) else { return };
    let order = root.get("order").map(Node::entries).unwrap_or_default();
    let mut report = |span, message: String, hint: &str| {
        problems.push(Problem::error(LINT.name, &loaded.file.path, span, message).hint(hint));
    };
    let missing: Vec<&str> = Topology::ALL
        .iter()
        .map(|topology| topology.word())
        .filter(|word| !order.iter().any(|e| e.key == *word))
        .collect();
    if !missing.is_empty() {
        let span = root.key_span("/order").unwrap_or(0..0);
        report(span, format!("no order for {}", missing.join(", ")), "every topology needs one; `[nccl]` is enough");
    }
    for entry in order {
        let words: Vec<&str> = entry.value.items().iter().filter_map(Node::text).collect();
        if words.last() != Some(&"nccl") {
            let message = format!("the order for {} does not end with `nccl`", entry.key);
            report(entry.key_span.clone(), message, "nccl takes every message, so it is always the last rung");
        }
        for (index, item) in entry.value.items().iter().enumerate() {
            if words[..index.min(words.len())].contains(&item.text().unwrap_or_default()) {
                let message = format!("`{}` appears twice in the order", item.text().unwrap_or_default());
                report(item.span.clone(), message, "the first place counts; remove the second");
            }
        }
    }
}
