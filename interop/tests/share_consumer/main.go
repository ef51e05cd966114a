// A member of a share group with franz-go: `program BOOTSTRAP TOPIC GROUP`. It prints the values of the records that it has accepted.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	bootstrap, topic, group := os.Args[1], os.Args[2], os.Args[3]
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic), kgo.ShareGroup(group))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx := context.Background()
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			panic(err)
		}
		records := fetches.Records()
		client.MarkAcks(kgo.AckAccept, records...)
		if err := client.FlushAcks(ctx); err != nil {
			panic(err)
		}
		for _, record := range records {
			fmt.Println(string(record.Value))
		}
	}
}
