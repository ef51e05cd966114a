// Programs on clients for Go that share no code with Java's or librdkafka.
//
// "franz-go" and "sarama" move a group's records in three transactions, of which the second is aborted, and print what a
// consumer of the same library reads as committed. "member" is a member of a group, on franz-go.
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
	if os.Args[1] == "member" {
		end(member(os.Args[2], os.Args[3], os.Args[4], os.Args[5]))
	}
	stories := map[string]func(context.Context, string, string, string) error{
		"franz-go": franz, "sarama": sarama,
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	story, bootstrap, source, sink := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	end(stories[story](ctx, bootstrap, source, sink))
}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, os.Args[1]+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func upTo(end int64) string {
	return fmt.Sprintf("up to %d", end)
}
