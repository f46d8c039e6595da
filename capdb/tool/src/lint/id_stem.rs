use capdb::problem::Problem;

use super::{Check, Lint, Subject};

pub static LINT: Lint = Lint {
    name: "id-not-file-name",
    about: "The id of a record equals its file's name without `.yaml`, so that a record is found by looking.",
    check: Check::Record(check),
};

fn check(subject: &Subject<'_>, problems: &mut Vec<Problem>) {
    let stem = subject.loaded.file.stem();
    if subject.is_record() && subject.id() != stem {
        let message = format!("the id `{}` is not the name of the file, `{stem}`", subject.id());
        problems.push(
            subject
                .error(LINT.name, subject.span("/id"), message)
                .hint(format!("rename the file to `{}.yaml`, or the record", subject.id())),
        );
    }
}
