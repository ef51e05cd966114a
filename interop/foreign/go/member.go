package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"github.com/twmb/franz-go/pkg/kgo"
)

// member consumes a topic in a group until SIGTERM, and commits each batch before it prints it. Its output has a line
// "owns PARTITION.." for each change of its assignment, a line "record PARTITION OFFSET" for each record, and "left" at its end.
func member(bootstrap, topic, group, protocol string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	owned := &ownership{partitions: map[int32]bool{}}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, all map[string][]int32) {
			owned.change(all[topic], true)
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, all map[string][]int32) {
			owned.change(all[topic], false)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, all map[string][]int32) {
			owned.change(all[topic], false)
		}),
	}
	if protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if records := fetches.Records(); len(records) > 0 {
			if err := client.CommitRecords(context.Background(), records...); err != nil {
				return err
			}
			for _, record := range records {
				fmt.Println("record", record.Partition, record.Offset)
			}
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	fmt.Println("left")
	return nil
}

type ownership struct {
	lock       sync.Mutex
	partitions map[int32]bool
}

func (owned *ownership) change(partitions []int32, has bool) {
	owned.lock.Lock()
	defer owned.lock.Unlock()
	for _, partition := range partitions {
		if has {
			owned.partitions[partition] = true
		} else {
			delete(owned.partitions, partition)
		}
	}
	var all []int32
	for partition := range owned.partitions {
		all = append(all, partition)
	}
	slices.Sort(all)
	line := "owns"
	for _, partition := range all {
		line += fmt.Sprintf(" %d", partition)
	}
	fmt.Fprintln(os.Stdout, line)
}
