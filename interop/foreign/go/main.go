// Transactions with franz-go and with Sarama: a group's records are moved in three transactions, of which the second is
// aborted. Prints what a consumer of the same library reads as committed.
package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// The offsets up to which each transaction moves. The second one is aborted.
var ends = []int64{4, 7, 10}

const aborted = 1

var group = "movers-" + os.Args[1]

func main() {
	stories := map[string]func(context.Context, string, string, string) error{
		"franz-go": franz, "sarama": sarama,
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	story, bootstrap, source, sink := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	if err := stories[story](ctx, bootstrap, source, sink); err != nil {
		fmt.Fprintln(os.Stderr, story+":", err)
		os.Exit(1)
	}
}

func upTo(end int64) string {
	return fmt.Sprintf("up to %d", end)
}
