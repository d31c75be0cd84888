# Prints messages in cowhand's JSON form: text, tool calls and their results.
cat > /dev/null
n=$(( $$ % 90 + 10 ))
echo '{"type":"assistant","content":"Asking the tracker for what is new."}'
echo '{"type":"tool_use","tool_name":"list_issues","tool_use_id":"t1","input":{"state":"open","since":"today"}}'
sleep 0.4
echo '{"type":"tool_result","tool_use_id":"t1","success":true,"result":["#'$n' login fails with SSO"]}'
sleep 0.3
echo '{"type":"assistant","content":"#'$n' is a regression in the session code: high priority, for the backend people."}'
