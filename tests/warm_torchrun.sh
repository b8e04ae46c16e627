#!/bin/sh
# `torchrun` in documents, without the seconds that importing torch takes three times: two ranks by forks, as warm_regard.py
# makes them. It knows the words that documents show and no others; test_cli_ranks.py and test_distributed.py ask torchrun itself.
while [ "$1" != "-m" ]; do
    case "$1" in
        --standalone) shift ;;
        --nproc-per-node) [ "$2" = 2 ] && shift 2 || exit 2 ;;
        --max-restarts) shift 2 ;;
        *) echo "torchrun: $1?" >&2; exit 2 ;;
    esac
done
[ "$2" = regard ] && shift 2 || exit 2
export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 20000))
RANK=0 LOCAL_RANK=0 regard "$@" &
RANK=1 LOCAL_RANK=1 regard "$@" && wait $!
