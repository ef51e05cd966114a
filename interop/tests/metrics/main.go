// Reads a topic with franz-go until it is stopped: `program BOOTSTRAP TOPIC`.
package main

import (
	"context"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]), kgo.ConsumeTopics(os.Args[2]))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	for {
		if err := client.PollFetches(context.Background()).Err0(); err != nil {
			panic(err)
		}
	}
}
