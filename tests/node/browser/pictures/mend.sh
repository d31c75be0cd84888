prompt=$(cat)
sed -i 's/= digits()/= signed_digits()/' src/tokenizer.rs
printf '%s\n' '#[test]' 'fn negative() {' '    assert_eq!(read("-3"), Ok(-3));' '}' > src/tests.rs
printf '%s\n' '{"type":"assistant","content":"I run the tests first, to see what fails."}' \
  '{"type":"tool_use","tool_name":"Bash","tool_use_id":"t1","input":{"command":"cargo test -p parser","description":"run the tests"}}' \
  '{"type":"tool_result","tool_use_id":"t1","result":"running 41 tests\ntest numbers::negative ... FAILED\n\n40 passed; 1 failed","success":true}' \
  '{"type":"assistant","content":"The sign is dropped when a number begins with a minus: the tokenizer takes it for an operator.\nI mend the tokenizer and add a case for it."}' \
  '{"type":"tool_use","tool_name":"Edit","tool_use_id":"t2","input":{"file_path":"src/tokenizer.rs","old_string":"digits()","new_string":"signed_digits()"}}' \
  '{"type":"tool_result","tool_use_id":"t2","result":"The file was changed.","success":true}' \
  '{"type":"tool_use","tool_name":"WebFetch","tool_use_id":"t3","input":{"url":"https://example.org/grammar"}}' \
  '{"type":"tool_result","tool_use_id":"t3","error":"the network is off","success":false}' \
  '{"type":"tool_use","tool_name":"Bash","tool_use_id":"t4","input":{"command":"cargo test -p parser"}}' \
  '{"type":"tool_result","tool_use_id":"t4","result":"running 42 tests\n42 passed","success":true}' \
  '{"type":"assistant","content":"All 42 tests pass."}' \
  '{"type":"result","is_error":false,"result":"Numbers keep their sign now. 42 tests pass.","num_turns":7,"total_cost_usd":0.37,"modelUsage":{"model-large":{"inputTokens":81000,"outputTokens":5200,"costUSD":0.35},"model-small":{"inputTokens":9000,"outputTokens":700,"costUSD":0.02}}}'
