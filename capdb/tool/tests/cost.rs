//! A decision allocates nothing, and validation is linear in the number of records.

use std::time::Instant;

use capdb::database::Database;
use capdb::decide::{AllReduceRequest, HostFacts, Request, Shape, Table, decide};
use capdb::record::{AlgorithmId, Dtype, FusionId, Topology};

#[test]
fn a_decision_allocates_nothing() {
    let database = Database::embedded();
    for id in database.index().ids() {
        let resolved = database.record(&id).unwrap();
        let table = Table::new(database.index(), &resolved).unwrap();
        let mut verdicts = 0_usize;
        let counted = allocation_counter::measure(|| {
            for topology in Topology::ALL {
                for world_size in [1, 2, 3, 4, 8, 16] {
                    for allreduce in [AllReduceRequest::Auto, AllReduceRequest::Algorithm(AlgorithmId::Multimem)] {
                        let host = HostFacts { topology: Some(*topology), ..HostFacts::default() };
                        let shape = Shape {
                            world_size,
                            dtype: Dtype::Bf16,
                            message: Some(114_688),
                            fusion: FusionId::ResidualRmsnorm,
                            heads: Some(48),
                            pipeline_parallel: 1,
                            workspace: None,
                        };
                        let request = Request { allreduce, strict: world_size == 4, ..Request::default() };
                        verdicts += decide(&table, &host, &shape, &request).verdict.word().len();
                    }
                }
            }
        });
        assert!(verdicts > 0);
        assert_eq!(counted.count_total, 0, "{id}");
    }
}

#[test]
fn the_embedded_database_opens_at_once() {
    let begun = Instant::now();
    for _ in 0..10 {
        assert!(!Database::embedded().index().archs.is_empty());
    }
    // The promise is 2 ms in a release build on a quiet machine; this bound only catches a change of kind.
    assert!(begun.elapsed().as_millis() < 1000, "{:?}", begun.elapsed());
}
