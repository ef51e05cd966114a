// A producer of franz-go with a transactional.id: prints how its first transaction fails, and exits with 1.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	if err := transaction(os.Args[1], os.Args[2]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func transaction(bootstrap, topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.TransactionalID("refused"), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	if err := client.ProduceSync(ctx, kgo.StringRecord("a")).FirstErr(); err != nil {
		return err
	}
	return client.EndTransaction(ctx, kgo.TryCommit)
}
