//! Every activation function that a config may name, against the values that transformers gives.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use serde_json::{Value, json};
use whin::model::config;
use whin::model::spec::FeedForward;
use whin_kernels::Activation;

/// What the config reader makes of a name; none where it refuses it, naming it.
fn read(name: &str) -> Option<Activation> {
    let json = json!({ "model_type": "qwen3", "hidden_act": name });
    match config::read(&serde_json::to_vec(&json).unwrap()) {
        Ok(spec) => {
            let FeedForward::Gated(gated) = &spec.layers[0].feed_forward else { panic!("not gated") };
            Some(gated.activation)
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.contains("hidden_act") && message.contains(name), "{message}");
            None
        }
    }
}

#[test]
fn every_name_gives_the_values_of_transformers() {
    let table: Value = serde_json::from_str(include_str!("fixtures/activations.json")).unwrap();
    let x: Vec<f32> = serde_json::from_value(table["x"].clone()).unwrap();
    let names = table["y"].as_object().unwrap();
    assert!(names.len() >= 22 && x.len() >= 20, "the table is small: {names:?}");
    for (name, y) in names {
        let activation = read(name).unwrap_or_else(|| panic!("{name} is refused"));
        let y: Vec<f32> = serde_json::from_value(y.clone()).unwrap();
        assert_eq!(x.len(), y.len(), "{name}");
        for (x, y) in x.iter().zip(y) {
            let got = activation.apply(*x);
            assert!((got - y).abs() <= 1e-6 * y.abs().max(1.0), "{name}({x}) = {got}, not {y}");
        }
    }
}

#[test]
fn names_with_trained_parameters_are_refused() {
    for name in ["prelu", "xielu"] {
        assert_eq!(read(name), None, "{name}");
    }
}
