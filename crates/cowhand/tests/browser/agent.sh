# An agent that a test controls: it prints the files NAME.1, NAME.2 and so on when they appear, and ends after NAME.end.
name=$1
echo "$name was told: $(cat)"
part=1
while :; do
    if [ -e "$name.$part" ]; then
        cat "$name.$part"
        part=$((part + 1))
    elif [ -e "$name.end" ] || [ ! -e cowhand.yaml ]; then
        break
    else
        sleep 0.05
    fi
done
echo "$name is done"
