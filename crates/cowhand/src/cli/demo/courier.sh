# Fails the first time, as networks do; the retry policy gives it another.
cat > /dev/null
echo "connecting"
sleep 0.3
if [ "$COWHAND_ATTEMPT" = 1 ]; then
  echo "connection reset by peer" >&2
  exit 1
fi
echo "report delivered"
