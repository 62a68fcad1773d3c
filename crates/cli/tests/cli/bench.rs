//! `whin bench`: what it reports, not how fast anything is.

use serde_json::Value;

use crate::checkpoints::Folder;
use crate::process;

#[test]
fn every_figure_that_was_asked_for_is_reported() {
    let folder = Folder::fixture("base");
    let report = process::json([
        "bench",
        "-m",
        folder.path(),
        "--prompt",
        "8,70",
        "--depth",
        "0,20",
        "--batch",
        "1,3",
        "-n",
        "8",
        "--runs",
        "1",
    ]);
    let keys: Vec<&String> = report.as_object().unwrap().keys().collect();
    let limits = ["bandwidth_gb_per_sec", "peak_gflop_per_sec"];
    assert_eq!(keys, ["weights", "kv", limits[0], limits[1], "peak_rss_bytes", "results"]);
    for key in limits {
        assert!(report[key].as_f64().unwrap() > 0.0, "{key}");
    }
    let results = report["results"].as_array().unwrap();
    let shape = |result: &Value| {
        let number = |key: &str| result[key].as_u64().unwrap();
        (result["kind"].as_str().unwrap().to_owned(), number("tokens"), number("depth"), number("batch"))
    };
    let decode = |depth, batch| ("decode".to_owned(), 8, depth, batch);
    let expected = [
        ("prefill".to_owned(), 8, 0, 1),
        ("prefill".to_owned(), 70, 0, 1),
        decode(0, 1),
        decode(0, 3),
        decode(20, 1),
        decode(20, 3),
    ];
    assert_eq!(results.iter().map(shape).collect::<Vec<_>>(), expected);
    for result in results {
        for key in ["tokens_per_sec", "bytes_per_token", "gb_per_sec", "gflop_per_sec"] {
            assert!(result[key].as_f64().unwrap() > 0.0, "{key} of {result}");
        }
        for (share, rate, limit) in
            [("share_of_bandwidth", "gb_per_sec", limits[0]), ("share_of_peak", "gflop_per_sec", limits[1])]
        {
            let number = |value: &Value| value.as_f64().unwrap();
            let expected = number(&result[rate]) / number(&report[limit]);
            assert!((number(&result[share]) / expected - 1.0).abs() < 1e-9, "{share} of {result}");
        }
    }
}

#[test]
fn nobody_measures_the_peak_of_the_reference() {
    let folder = Folder::fixture("base");
    let arguments =
        ["bench", "-m", folder.path(), "--device", "reference", "--prompt", "8", "-n", "8", "--runs", "1"];
    let report = process::json(arguments);
    assert_eq!(report["peak_gflop_per_sec"], Value::Null);
    assert!(
        report["results"].as_array().unwrap().iter().all(|result| result["share_of_peak"] == Value::Null)
    );
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (arguments, part) in [
        (["--batch", "0"], "--batch"),
        (["--batch", "65"], "64"),
        (["--prompt", "0"], "--prompt"),
        (["--prompt", "5000"], "4096"),
        (["--depth", "18446744073709551615"], "4096"),
        (["--tokens", "1"], "--tokens"),
        (["--tokens", "18446744073709551615"], "4096"),
        (["--runs", "0"], "--runs"),
    ] {
        process::refused([&["bench"], arguments.as_slice()].concat(), "invalid_arguments", &[part]);
    }
    let too_many = ["bench", "--batch", "4", "--prefill-chunk", "2"];
    process::refused(too_many.to_vec(), "invalid_arguments", &["--batch 4", "--prefill-chunk"]);
}
