# Fails in the first attempt. The retry policy starts a second attempt.
cat > /dev/null
echo "connecting"
sleep 0.3
if [ "$COWHAND_ATTEMPT" = 1 ]; then
  echo "connection reset by peer" >&2
  exit 1
fi
echo "report delivered"
