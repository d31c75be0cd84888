cat >/dev/null
for part in core store server pages; do echo "   Compiling fleet-$part v0.4.1"; done
echo '    Finished `dev` profile in 41.7s'
echo 'running 318 tests'
while [ ! -e done ] && [ -e cowhand.yaml ]; do sleep 0.1; done
