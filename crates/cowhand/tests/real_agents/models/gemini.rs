//! `POST /v1beta/models/NAME:generateContent` and `:streamGenerateContent`, as the Gemini CLI uses them.

use serde_json::{Value, json};

use super::{CACHED, INPUT, OUTPUT, Vendor, event, shell_of};

pub(super) const VENDOR: Vendor =
    Vendor { conversation: "contents", answered: "\"functionResponse\"", words, shell };

fn words(request: &Value, words: &[&str]) -> Vec<String> {
    // Only internal requests of the Gemini CLI ask for JSON, for example the choice of the model.
    if request["generationConfig"]["responseMimeType"] == "application/json" {
        let text = json!({"reasoning": "it is simple", "model_choice": "flash", "complexity_reasoning": "", "complexity_score": 1}).to_string();
        return vec![chunk(&json!({"text": text}), true).to_string()];
    }
    let last = words.len().saturating_sub(1);
    let words = words.iter().enumerate();
    words.map(|(place, word)| event(None, &chunk(&json!({"text": word}), place == last))).collect()
}

fn shell(request: &Value, command: &str) -> Vec<String> {
    let name = shell_of(&request["tools"]).unwrap_or_default();
    let call = json!({"name": name, "args": {"command": command, "description": "say a word"}});
    vec![event(None, &chunk(&json!({"functionCall": call}), true))]
}

fn chunk(part: &Value, last: bool) -> Value {
    let mut chunk = json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}}]});
    if last {
        chunk["candidates"][0]["finishReason"] = json!("STOP");
        chunk["usageMetadata"] = json!({
            "promptTokenCount": INPUT + CACHED, "cachedContentTokenCount": CACHED,
            "candidatesTokenCount": OUTPUT, "totalTokenCount": INPUT + CACHED + OUTPUT,
        });
    }
    chunk
}
