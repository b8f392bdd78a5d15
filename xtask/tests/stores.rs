//! The page of what each store can do is that of the contract.

use xtask::repo;
use xtask::stores::{Facts, PAGE, breaches};

#[test]
fn the_page_of_the_stores_is_that_of_the_contract() {
    let root = repo::root();
    let page = std::fs::read_to_string(root.join(PAGE)).expect("it is part of the repository");
    let facts = Facts::read(&root).expect("the sources are there");
    assert!(200 < page.matches('`').count(), "the page names the scenarios");
    let found = breaches(&facts, &page).expect("it has its marks");
    assert!(found.is_empty(), "{}", found.join("\n"));
}
