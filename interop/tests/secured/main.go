
func main() {
	options, err := secureOptions()
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	topic, value := os.Args[1], os.Args[2]
	client, err := kgo.NewClient(append(options, kgo.ConsumeTopics(topic))...)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	// A producer would retry a login that is refused.
	if err := client.Ping(ctx); err != nil {
		fmt.Println("refused:", err)
		return
	}
	record := &kgo.Record{Topic: topic, Value: []byte(value)}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		panic(err)
	}
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			panic(err)
		}
		for _, record := range fetches.Records() {
			fmt.Println("read:", string(record.Value))
			if string(record.Value) == value {
				return
			}
		}
	}
}
