#![no_main]

whin_fuzz::fuzzer!(template);
