cat >/dev/null
printf '%s\n' '{"type":"assistant","content":"There are 14 new issues. I begin with the oldest."}' \
  '{"type":"tool_use","tool_name":"Bash","tool_use_id":"t1","input":{"command":"gh issue list --state open --limit 14"}}' \
  '{"type":"tool_result","tool_use_id":"t1","result":"#412 login fails behind a proxy\n#413 typo in the manual","success":true}' \
  '{"type":"assistant","content":"#412 is urgent: three people report it, and it keeps them out."}' \
  '{"type":"tool_use","tool_name":"Bash","tool_use_id":"t2","input":{"command":"gh issue edit 412 --add-label urgent"}}'
while [ ! -e done ] && [ -e cowhand.yaml ]; do sleep 0.1; done
