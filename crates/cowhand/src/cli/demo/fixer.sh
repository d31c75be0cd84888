# The prompt contains the claimed task. cowhand writes the result, with the pull request, into the file of the task.
title=$(sed -n 's/^## Work Item: `*\([^`]*\)`*$/\1/p' | head -n 1)
echo '{"type":"assistant","content":"Looking for where this goes wrong."}'
echo '{"type":"tool_use","tool_name":"run_tests","tool_use_id":"t1","input":{"only":"changed"}}'
sleep 0.5
echo '{"type":"tool_result","tool_use_id":"t1","success":true,"result":"38 passed"}'
sleep 0.3
echo "{\"type\":\"assistant\",\"content\":\"$title: https://git.example.com/shop/pull/$(( $$ % 900 + 100 ))\"}"
